// Selects the rows that a snapshot sees: select_visible, gather_visible.

#include "../common/content.hpp"
#include "data.hpp"

namespace {

const std::vector<Key> KEYS = {
    key("a", 9, TYPE_VALUE, 7), key("a", 6, TYPE_VALUE, 6), key("a", 5, TYPE_VALUE, 5),  // above, seen, hidden
    key("b", 6, TYPE_DELETION, 4),
    key("c", 4, TYPE_VALUE, 3), key("cc", 5, TYPE_VALUE, 2),  // deleted by a range tombstone, and not
    key("d", 4, TYPE_VALUE, 1),                               // at its end
    key("e", 2, TYPE_MERGE, 0),
};

SnapshotArgs args_for(u32 keep_tombstones, u32 mark_needs_merge) {
  SnapshotArgs args{};
  args.keys = memory(KEYS);
  args.n = KEYS.size();
  args.hashes = memory<u64>({100, 101, 102, 103, 104, 105, 106, 107});
  args.rules = {6, keep_tombstones, mark_needs_merge, memory<Fragment>({{user_key("c"), user_key("d"), 1, 2}}),
                memory<u64>({99, 5}), 1};
  args.fragment_places = room<u64>(1);
  args.cover = zeros<u32>(args.n);
  give_room(args);
  return args;
}

u64 hash_of(const Key& key) { return entry_hash(100 + key.entry, key.tag); }

}  // namespace

TEST(select_visible, a_snapshot_sees_the_newest_entry_at_or_below_it) {
  const SnapshotArgs args = args_for(0, 1);
  RUN(select_visible, &args);
  EQUAL(read(args.errors), NO_ERROR);
  EQUALS(args.keep, 0, 1, 0, 0, 0, 1, 1, 1);
  const RetainTotals totals = read(args.totals);
  EQUAL(totals.above, 1);
  EQUAL(totals.replaced, 2);
  EQUAL(totals.tombstones_dropped, 1);
  EQUAL(totals.kept, 4);
  EQUAL(totals.dropped, 4);
  EQUAL(totals.hash_kept, hash_of(KEYS[1]) + hash_of(KEYS[5]) + hash_of(KEYS[6]) + hash_of(KEYS[7]));
  EQUAL(totals.hash_dropped, hash_of(KEYS[0]) + hash_of(KEYS[2]) + hash_of(KEYS[3]) + hash_of(KEYS[4]));
  EQUAL(totals.rows_hash, totals.hash_kept);
}

TEST(gather_visible, selected_rows_lie_side_by_side) {
  const SnapshotArgs args = args_for(0, 1);
  RUN(select_visible, &args);
  RUN(gather_visible, &args);
  EQUAL(show_keys(args.selected_rows, 4), "a@6.1#6 cc@5.1#2 d@4.1#1 e@2.2#0");
}

TEST(select_visible, tombstones_and_operands_are_rows_only_if_asked_for) {
  const SnapshotArgs args = args_for(1, 0);
  RUN(select_visible, &args);
  EQUALS(args.keep, 0, 1, 0, 1, 0, 1, 1, 0);
  EQUAL(read(args.errors), error_of(7, ERROR_UNDECIDED));
}
