// The host's table with the failures that crates/cuda/src/driver/faults.rs plans.

#include <cstddef>

#include "stage_list.hpp"
#include "table.hpp"

namespace rockmill::ROCKMILL_TARGET {
namespace {

// Kinds of calls.
enum Kind : u32 { CALL_ALLOCATE, CALL_PIN, CALL_STREAM, CALL_EVENT, CALL_WAIT, CALL_COPY, CALL_STAGE };

// Reported regions.
enum Region : u32 { REGION_INDEX, REGION_EDGES, REGION_SIZES, REGION_FOUND, REGION_NEXT_KEY, REGION_ROWS, REGION_MERGED };

// Moments at which blocks are reported.
enum Moment : u32 { MOMENT_UNSEALED, MOMENT_FINISHED };

struct Hooks {
  // Called before a call: 0, or the error that the call returns without doing anything.
  int (*before)(u32 kind, u64 bytes);
  // Called with allocations, and with releases.
  void (*got)(u32 kind, void* thing, u64 bytes);
  void (*gone)(u32 kind, void* thing);
  // Says how much device memory there is, or is free.
  u64 (*memory)(u32 is_free);
  // May alter the data copied back.
  void (*copied_back)(void* to, const void* from, u64 bytes);
  // Called with the place of a list to come, or of data that may be altered: an index block without its checksum, a
  // key.
  void (*made)(u32 region, const void* at, u64 bytes);
  // May alter blocks in the images before they get their checksums, or when images are finished and not yet verified.
  void (*written)(u32 moment, const u8* images, const OutBlock* blocks, u64 n);
};

const Hooks* hooks;
const KernelTable* host;

// A call that fails, or is passed to the host's table.
template <Kind KIND, auto FIELD>
struct Wrapped;

template <Kind KIND, class... Args, int (*KernelTable::*FIELD)(Args...)>
struct Wrapped<KIND, FIELD> {
  static int call(Args... args) {
    if (int error = hooks->before(KIND, 0)) return error;
    return (host->*FIELD)(args...);
  }
};

template <Kind KIND, auto FIELD>
int make(void** out) {
  if (int error = hooks->before(KIND, 0)) return error;
  if (int error = (host->*FIELD)(out)) return error;
  hooks->got(KIND, *out, 0);
  return 0;
}

template <Kind KIND, auto FIELD>
int get(void** out, u64 bytes) {
  if (int error = hooks->before(KIND, bytes)) return error;
  if (int error = (host->*FIELD)(out, bytes)) return error;
  hooks->got(KIND, *out, bytes);
  return 0;
}

template <Kind KIND, auto FIELD>
int give_back(void* thing) {
  hooks->gone(KIND, thing);
  return (host->*FIELD)(thing);
}

int copy_from_device(void* to, const void* from, u64 n, void* stream) {
  if (int error = hooks->before(CALL_COPY, 0)) return error;
  if (int error = host->copy_from_device(to, from, n, stream)) return error;
  hooks->copied_back(to, from, n);
  return 0;
}

int measure_index(const Exec* exec, const LayoutArgs* args) {
  hooks->made(REGION_SIZES, args->indexes, sizeof(FileIndex));
  const auto measure = Wrapped<CALL_STAGE, &KernelTable::measure_index>::call;
  if (args->num_blocks < 2) return measure(exec, args);
  // Altered for this stage only, as if it had misread it.
  Key& next = const_cast<Key&>(args->selected_rows[args->block_starts[1]]);
  const Key sound = next;
  hooks->made(REGION_NEXT_KEY, &next, sizeof next);
  const int error = measure(exec, args);
  next = sound;
  return error;
}

int make_values(const Exec* exec, const RetainArgs* args) {
  const int error = Wrapped<CALL_STAGE, &KernelTable::make_values>::call(exec, args);
  hooks->made(REGION_MERGED, args->arena + args->made_at, args->made_offsets[args->n]);
  return error;
}

int copy_rows(const Exec* exec, const RowArgs* args, u64 first, u64 end, u8* out) {
  const int error = Wrapped<CALL_STAGE, &KernelTable::copy_rows>::call(exec, args, first, end, out);
  hooks->made(REGION_ROWS, out, args->offsets[end] - args->offsets[first]);
  return error;
}

int scan_copy(const Exec* exec, const ScanArgs* args, u64 first, u64 rows) {
  const int error = Wrapped<CALL_STAGE, &KernelTable::scan_copy>::call(exec, args, first, rows);
  const ScanColumn& column = args->columns[0];
  hooks->made(REGION_ROWS, args->out + column.data, reinterpret_cast<const u32*>(args->out + column.packed)[rows]);
  return error;
}

int scan_take_groups(const Exec* exec, const ScanGroups* groups, const u32* slots, u64 n, u64* out) {
  const int error = Wrapped<CALL_STAGE, &KernelTable::scan_take_groups>::call(exec, groups, slots, n, out);
  hooks->made(REGION_ROWS, out, n * groups->num_words * sizeof(u64));
  return error;
}

int place_blocks(const Exec* exec, const LayoutArgs* args, u32 num_files) {
  const FileIndex& first = args->indexes[0];
  hooks->made(REGION_EDGES, args->edges, u64(first.smallest_len) + first.largest_len + 2 * TAG_BYTES);
  return Wrapped<CALL_STAGE, &KernelTable::place_blocks>::call(exec, args, num_files);
}

int seal_blocks(const Exec* exec, const OutBlock* blocks, u64 n, const u32* bases, u32 checksum, u8* images) {
  hooks->written(MOMENT_UNSEALED, images, blocks, n);
  return Wrapped<CALL_STAGE, &KernelTable::seal_blocks>::call(exec, blocks, n, bases, checksum, images);
}

int write_index(const Exec* exec, const LayoutArgs* args, u8* images) {
  const int error = Wrapped<CALL_STAGE, &KernelTable::write_index>::call(exec, args, images);
  hooks->made(REGION_INDEX, images + args->places[0].index, args->indexes[0].size + TRAILER_BYTES);
  return error;
}

int decode_images(const Exec* exec, const VerifyArgs* args) {
  hooks->written(MOMENT_FINISHED, args->images, args->blocks, args->num_blocks);
  hooks->made(REGION_FOUND, args->found, sizeof(FoundFile));
  return Wrapped<CALL_STAGE, &KernelTable::decode_images>::call(exec, args);
}

const char* error_text(int) { return "it was planned to fail"; }

// Number of functions of the table that are not stages. A new one needs its failure below.
constexpr u64 OTHER_FUNCTIONS = 29;
static_assert(sizeof(KernelTable) - offsetof(KernelTable, error_text) ==
              (OTHER_FUNCTIONS + ROCKMILL_NUM_STAGES) * sizeof(void*));

#define ROCKMILL_FAIL(kind, name) t.name = Wrapped<kind, &KernelTable::name>::call

KernelTable table() {
  KernelTable t = *host;
  t.error_text = error_text;
  t.allocate = get<CALL_ALLOCATE, &KernelTable::allocate>;
  t.release = give_back<CALL_ALLOCATE, &KernelTable::release>;
  t.allocate_pinned = get<CALL_PIN, &KernelTable::allocate_pinned>;
  t.release_pinned = give_back<CALL_PIN, &KernelTable::release_pinned>;
  t.memory_info = [](u64* free, u64* total) { return *free = hooks->memory(1), *total = hooks->memory(0), 0; };
  ROCKMILL_FAIL(CALL_WAIT, reaches);
  t.stream_create = make<CALL_STREAM, &KernelTable::stream_create>;
  t.stream_destroy = give_back<CALL_STREAM, &KernelTable::stream_destroy>;
  t.event_create = make<CALL_EVENT, &KernelTable::event_create>;
  t.event_destroy = give_back<CALL_EVENT, &KernelTable::event_destroy>;
  ROCKMILL_FAIL(CALL_WAIT, event_record);
  ROCKMILL_FAIL(CALL_WAIT, event_synchronize);
  ROCKMILL_FAIL(CALL_WAIT, event_query);
  ROCKMILL_FAIL(CALL_WAIT, stream_captures);
  ROCKMILL_FAIL(CALL_COPY, copy_to_device);
  t.copy_from_device = copy_from_device;
  ROCKMILL_FAIL(CALL_COPY, copy_inside);
  ROCKMILL_FAIL(CALL_COPY, fill);
#define ROCKMILL_FAIL_STAGE(stage) ROCKMILL_FAIL(CALL_STAGE, stage);
  ROCKMILL_STAGES(ROCKMILL_FAIL_STAGE)
  // Those that also report memory.
  t.make_values = make_values;
  t.copy_rows = copy_rows;
  t.scan_copy = scan_copy;
  t.scan_take_groups = scan_take_groups;
  t.measure_index = measure_index;
  t.place_blocks = place_blocks;
  t.seal_blocks = seal_blocks;
  t.write_index = write_index;
  t.decode_images = decode_images;
  return t;
}

}  // namespace
}  // namespace rockmill::ROCKMILL_TARGET

extern "C" const rockmill::ROCKMILL_TARGET::KernelTable* rockmill_host_kernels();

extern "C" const rockmill::ROCKMILL_TARGET::KernelTable* rockmill_faulty_kernels(
    const rockmill::ROCKMILL_TARGET::Hooks* given) {
  using namespace rockmill::ROCKMILL_TARGET;
  static const KernelTable wrapped = (hooks = given, host = rockmill_host_kernels(), table());
  return &wrapped;
}
