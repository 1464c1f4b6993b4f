// Late answers, closing and wrong calls of views with device "cpu". Prints a line for each part that has passed.
//
//   kv FOLDER
#include "kv.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

const rockmill::thread tile;

rm_view_options options_of(const Database& database, const rm_store* store, uint32_t request_slots, uint32_t request_slot_bytes,
                           uint32_t timeout_ms) {
  rm_view_options options{};
  options.struct_size = sizeof options;
  options.path = database.path.c_str();
  options.device = "cpu";
  options.store = store;
  options.request_slots = request_slots;
  options.request_slot_bytes = request_slot_bytes;
  options.timeout_ms = timeout_ms;
  return options;
}

rm_view* open(const Database& database, const rm_store* store, uint32_t request_slots, uint32_t request_slot_bytes,
              uint32_t timeout_ms) {
  return open_view(options_of(database, store, request_slots, request_slot_bytes, timeout_ms));
}

// A store that answers when the test allows it.
struct Slow {
  std::atomic<bool> may_answer{false};
  std::atomic<int> waiting{0}, calls{0};

  static void get(void* state, const rm_bytes*, size_t n, rm_tell_value tell, void* context) {
    Slow& self = *static_cast<Slow*>(state);
    ++self.calls;
    ++self.waiting;
    while (!self.may_answer) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (size_t i = 0; i < n; ++i) tell(context, i, RM_KV_FOUND, "late", 4);
    --self.waiting;
  }
};

rm_store store_of(Slow& slow) {
  rm_store store{};
  store.struct_size = sizeof store;
  store.state = &slow;
  store.get = Slow::get;
  return store;
}

rockmill::result get_latest(rockmill::kv& kv, char* buffer) {
  return kv.wait(tile, kv.get_latest(tile, "key", 3, buffer, 8));
}

void late_answers(const Database& database) {
  Slow slow;
  const rm_store store = store_of(slow);
  // 16 request slots, which are left behind one after another.
  rm_view* view = open(database, &store, 16, 64, 50);
  {
    rockmill::hold hold(view);
    rockmill::kv kv = hold.kv();
    char buffer[8] = "own";
    for (int i = 0; i < 16; ++i) {
      check(get_latest(kv, buffer).status == rockmill::status::timed_out, "a late answer came in time");
    }
    check(std::string(buffer) == "own", "a late answer came to the caller's memory");
    check(get_latest(kv, buffer).status == rockmill::status::timed_out, "there was a request slot");
    const auto put = kv.wait(tile, kv.put(tile, "key", 3, "v", 1));
    check(put.status == rockmill::status::timed_out, "there was a request slot for a put");
    slow.may_answer = true;
    rockmill::result got{};
    for (int i = 0; i < 200 && got.status != rockmill::status::found; ++i) got = get_latest(kv, buffer);
    check(got.status == rockmill::status::found && got.len == 4, "no request slot came back");
    // All of them are free again: each ticket has its own.
    std::vector<rockmill::ticket> tickets;
    for (int i = 0; i < 16; ++i) tickets.push_back(kv.get_latest(tile, "key", 3, buffer, 8));
    const auto more = kv.get_latest(tile, "key", 3, buffer, 8);
    check(more.status == rockmill::status::busy, "a ticket of more than there are request slots");
    for (const auto& ticket : tickets) check(kv.wait(tile, ticket).status == rockmill::status::found, "no answer");
    const auto written = kv.wait(tile, kv.put(tile, "key", 3, "v", 1));
    check(written.status == rockmill::status::read_only, "a put without a function for it");
  }
  close_view(view);
}

// While the store blocks one thread, the other one answers.
void a_thread_that_waits(const Database& database) {
  for (int round = 0; round < 6; ++round) {
    Slow slow;
    rm_store store = store_of(slow);
    store.get = [](void* state, const rm_bytes* keys, size_t n, rm_tell_value tell, void* context) {
      for (size_t i = 0; i < n; ++i) {
        if (std::string(keys[i].data, keys[i].size) == "slow") return Slow::get(state, keys, n, tell, context);
      }
      for (size_t i = 0; i < n; ++i) tell(context, i, RM_KV_FOUND, "fast", 4);
    };
    rm_view_options options = options_of(database, &store, 16, 64, 600'000);
    options.threads = 2;
    rm_view* view = open_view(options);
    {
      rockmill::hold hold(view);
      rockmill::kv kv = hold.kv();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      char first[8], buffer[8];
      const auto waits = kv.get_latest(tile, "slow", 4, first, 8);
      while (slow.waiting == 0) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      // Each thread has eight request slots.
      std::atomic<int> found{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < 15; ++i) {
        threads.emplace_back([&, kv = hold.kv()]() mutable {
          char own[8];
          if (kv.wait(tile, kv.get_latest(tile, "fast", 4, own, 8)).status == rockmill::status::found) ++found;
        });
      }
      for (int i = 0; i < 5000 && found < 8; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      check(found >= 8, "nobody answers while a thread waits");
      slow.may_answer = true;
      for (std::thread& thread : threads) thread.join();
      check(kv.wait(tile, waits).status == rockmill::status::found, "no late answer");
      check(get_latest(kv, buffer).status == rockmill::status::found, "no answer");
    }
    close_view(view);
  }
}

void closing(const Database& database) {
  Slow slow;
  const rm_store store = store_of(slow);
  rm_view* view = open(database, &store, 16, 64, 600'000);
  std::thread closer;
  {
    rockmill::hold hold(view);
    std::vector<std::thread> threads;
    for (int i = 0; i < 24; ++i) {
      threads.emplace_back([kv = hold.kv()]() mutable {
        char buffer[8];
        check(get_latest(kv, buffer).status == rockmill::status::aborted, "not aborted");
      });
    }
    while (slow.waiting == 0) std::this_thread::yield();
    closer = std::thread([&] { close_view(view); });
    // They end although the store has answered none of them.
    for (std::thread& thread : threads) thread.join();
    slow.may_answer = true;
  }
  closer.join();
}

// Threads hold a view until another one has closed it. After that, the store is not called.
void closing_beside_calls(const Database& database) {
  for (int round = 0; round < 50; ++round) {
    auto slow = std::make_unique<Slow>();
    slow->may_answer = true;
    const rm_store store = store_of(*slow);
    rm_view* view = open(database, &store, 16, 64, 600'000);
    std::atomic<int> holds{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        try {
          for (;;) {
            rockmill::hold hold(view);
            rockmill::kv kv = hold.kv();
            char buffer[8];
            get_latest(kv, buffer);
            ++holds;
            rm_view_refresh(view, nullptr);
          }
        } catch (const std::runtime_error&) {
        }
      });
    }
    while (holds < 8) std::this_thread::yield();
    close_view(view);
    const int calls = slow->calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    check(slow->calls == calls && slow->waiting == 0, "a view that is closed calls its store");
    for (std::thread& thread : threads) thread.join();
  }
}

// Checks that a view of a store refuses writes.
void check_read_only(rm_view* view) {
  rockmill::hold hold(view);
  rockmill::kv kv = hold.kv();
  const auto put = kv.wait(tile, kv.put(tile, "sum", 3, "v", 1));
  check(put.status == rockmill::status::read_only, "a put into a database of somebody else");
  const auto del = kv.wait(tile, kv.del(tile, "sum", 3));
  check(del.status == rockmill::status::read_only, "a delete in a database of somebody else");
}

// Another handle writes, like another process would. The newest entry of the key is a merge operand, so RocksDB is
// asked.
void a_secondary_instance(const std::string& folder) {
  const Database primary(folder + "/primary");
  char* error = nullptr;
  uint64_t expected = 0;
  const auto add = [&](uint64_t number) {
    expected += number;
    const char* bytes = reinterpret_cast<const char*>(&number);
    rocksdb_merge(primary.db, primary.write, "sum", 3, bytes, sizeof number, &error);
    check(error);
  };
  add(1);
  const std::string own = folder + "/secondary";
  rocksdb_t* db = rocksdb_open_as_secondary(primary.options, primary.path.c_str(), own.c_str(), &error);
  check(error);
  rocksdb_column_family_handle_t* family = rocksdb_get_default_column_family_handle(db);
  rm_rocksdb_store of = {db, family, primary.read, primary.write};
  const rm_store store = rm_store_of_rocksdb(&of);
  rm_view* view = open_view(options_of(primary, &store, 16, 64, 60'000));
  rocksdb_flushoptions_t* flush = rocksdb_flushoptions_create();
  for (uint64_t round = 0; round < 4; ++round) {
    add(round);
    if (round % 2 == 0) rocksdb_flush(primary.db, flush, &error);
    check(error);
    rm_view_refresh(view, &error);
    check(error);
    rockmill::hold hold(view);
    rockmill::kv kv = hold.kv();
    uint64_t sum = 0;
    check(kv.find(tile, "sum", 3).status == rockmill::status::ask, "a merge operand tells the value");
    const auto got = kv.get(tile, "sum", 3, &sum, sizeof sum);
    check(got.status == rockmill::status::found && sum == expected, "a get is behind");
    add(7);
    const auto latest = kv.wait(tile, kv.get_latest(tile, "sum", 3, &sum, sizeof sum));
    check(latest.status == rockmill::status::found && sum == expected, "the latest value is behind");
  }
  check_read_only(view);
  close_view(view);
  rocksdb_flushoptions_destroy(flush);
  rocksdb_column_family_handle_destroy(family);
  rocksdb_close(db);

  of.db = rocksdb_open_for_read_only(primary.options, primary.path.c_str(), 0, &error);
  check(error);
  of.family = rocksdb_get_default_column_family_handle(of.db);
  view = open_view(options_of(primary, &store, 16, 64, 60'000));
  check_read_only(view);
  close_view(view);
  rocksdb_column_family_handle_destroy(of.family);
  rocksdb_close(of.db);
}

// Each of these lookups is refused, and names its argument.
void wrong_lookups(rm_view* view) {
  alignas(8) char bytes[64] = {};
  uint8_t* const statuses = reinterpret_cast<uint8_t*>(bytes + 32);
  rm_lookup good{};
  good.struct_size = sizeof good;
  good.keys = bytes;
  good.key_size = 8;
  good.num_keys = 1;
  good.statuses = statuses;
  const auto refused = [&](const rm_lookup& lookup, const char* sentence) {
    char* error = nullptr;
    check(rm_view_lookup(view, &lookup, nullptr, &error) == RM_INVALID, sentence);
    check(std::string(error).find(sentence) != std::string::npos, error);
    rm_free(error);
  };
  rm_lookup lookup = good;
  lookup.keys = nullptr;
  refused(lookup, "keys: the pointer is null");
  lookup = good;
  lookup.statuses = nullptr;
  refused(lookup, "statuses: the pointer is null");
  lookup = good;
  lookup.row_size = 8;
  refused(lookup, "rows: the pointer is null");
  lookup = good;
  lookup.key_offsets = reinterpret_cast<const uint64_t*>(bytes + 4);
  refused(lookup, "offsets");
  lookup = good;
  lookup.sizes = reinterpret_cast<uint32_t*>(bytes + 2);
  refused(lookup, "sizes");
  char* error = nullptr;
  check(rm_view_lookup(view, &good, nullptr, &error) == RM_SUCCESS, "a good lookup");
  check(error);
  check(statuses[0] == RM_KV_NOT_FOUND, "eight zeros are no key");
}

void wrong_calls(const Database& database) {
  rm_view* view = open(database, nullptr, 0, 0, 0);
  char* error = nullptr;
  char kv_bytes[1024];
  uint64_t number = 0;
  check(rm_view_hold(view, nullptr, kv_bytes, sizeof kv_bytes, 1, &number, &error) == RM_INVALID, "another layout");
  check(std::string(error).find("compile") != std::string::npos, error);
  rm_free(error);
  {
    rockmill::hold hold(view);
    rockmill::kv kv = hold.kv();
    char buffer[8];
    check(kv.wait(tile, kv.put(tile, "k", 1, "v", 1)).status == rockmill::status::read_only, "a put without a store");
    check(kv.get(tile, "", 0, buffer, 8).status == rockmill::status::not_found, "an empty key that is not there");
  }
  wrong_lookups(view);
  check(rm_view_release(view, 77, &error) == RM_INVALID, "no such hold");
  rm_free(error);
  char* stats = rm_view_stats_json(view, &error);
  check(error);
  check(std::string(stats).find("\"keys\"") != std::string::npos, stats);
  rm_free(stats);
  close_view(view);
  check(rm_view_close(view, &error) == RM_INVALID, "closed twice");
  rm_free(error);
  try {
    rockmill::hold hold(view);
    check(false, "held after close");
  } catch (const std::runtime_error&) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  check(argc == 2, "usage: kv FOLDER");
  const Database database(argv[1]);
  late_answers(database);
  std::printf("late answers\n");
  a_thread_that_waits(database);
  std::printf("a thread that waits\n");
  closing(database);
  std::printf("closing\n");
  closing_beside_calls(database);
  std::printf("closing beside calls\n");
  a_secondary_instance(argv[1]);
  std::printf("a secondary instance\n");
  wrong_calls(database);
  std::printf("wrong calls\n");
}
