// Selects the entries that survive a compaction: retain.

#include "../common/content.hpp"
#include "data.hpp"

namespace {

// Arguments for merged keys. Entry i has the hash 100 + i.
RetainArgs args_for(const std::vector<Key>& keys, const RetainRules& rules) {
  const u64 n = keys.size();
  std::vector<u64> hashes;
  for (u64 i = 0; i < n; ++i) hashes.push_back(100 + i);
  RetainArgs args{};
  args.keys = memory(keys);
  args.n = n;
  args.values = room<ValueRef>(n);
  args.hashes = memory(hashes);
  args.rules = rules;
  args.heads = room<u32>(n);
  args.has_older = zeros<u8>(n);
  give_room(args);
  return args;
}

u64 hash_of(const Key& key) { return entry_hash(100 + key.entry, key.tag); }

// Snapshot 5; the level below has a file with d alone.
RetainRules rules_with_snapshot() {
  RetainRules rules{};
  rules.snapshots = memory<u64>({5});
  rules.num_snapshots = 1;
  rules.earliest = 5;
  rules.deeper = memory<KeySpan>({{user_key("d"), user_key("d"), 0}});
  rules.level_ends = memory<u32>({1});
  rules.num_levels = 1;
  return rules;
}

}  // namespace

TEST(retain, the_newest_entry_of_each_snapshot_survives) {
  const std::vector<Key> keys = {
      key("a", 9, TYPE_VALUE, 6), key("a", 7, TYPE_VALUE, 5),     // the snapshot sees neither
      key("a", 5, TYPE_VALUE, 4),                                 // what the snapshot sees
      key("b", 8, TYPE_DELETION, 3),                              // above the snapshot
      key("c", 3, TYPE_DELETION, 2),                              // nothing is below it
      key("d", 2, TYPE_DELETION, 1), key("d", 1, TYPE_VALUE, 0),  // the level below may have d
  };
  const RetainArgs args = args_for(keys, rules_with_snapshot());
  RUN(retain, &args);
  EQUALS(args.keep, 1, 0, 1, 1, 0, 1, 0);
  EQUAL(show_keys(args.selected_rows, 4), "a@9.1#6 a@5.1#4 b@8.0#3 d@2.0#1");
  const RetainTotals totals = read(args.totals);
  EQUAL(totals.kept, 4);
  EQUAL(totals.dropped, 3);
  EQUAL(totals.replaced, 2);
  EQUAL(totals.tombstones_dropped, 1);
  EQUAL(totals.hash_kept, hash_of(keys[0]) + hash_of(keys[2]) + hash_of(keys[3]) + hash_of(keys[5]));
  EQUAL(totals.hash_dropped, hash_of(keys[1]) + hash_of(keys[4]) + hash_of(keys[6]));
  EQUAL(totals.rows_hash, totals.hash_kept);
}

TEST(retain, range_tombstones_delete_older_entries_of_the_same_snapshot) {
  const std::vector<Key> keys = {key("d", 4, TYPE_VALUE, 0), key("e", 7, TYPE_VALUE, 1), key("e", 4, TYPE_VALUE, 2),
                                 key("ez", 6, TYPE_VALUE, 3), key("f", 4, TYPE_VALUE, 4), key("h", 3, TYPE_VALUE, 5)};
  RetainRules rules = rules_with_snapshot();
  // From e to f with sequence number 5; from h on, above the snapshot that sees h.
  rules.fragments = memory<Fragment>({{user_key("e"), user_key("f"), 0, 1}, {user_key("h"), user_key("i"), 1, 2}});
  rules.sequences = memory<u64>({5, 8});
  rules.num_fragments = 2;
  RetainArgs args = args_for(keys, rules);
  args.fragment_places = room<u64>(2);
  args.cover = zeros<u32>(keys.size());
  RUN(retain, &args);
  EQUALS(args.fragment_places, 1, 5);
  EQUALS(args.cover, 0, 1, 1, 1, 1, 2);
  EQUALS(args.keep, 1, 1, 0, 1, 1, 1);
  EQUAL(read(args.totals).replaced, 1);
}

TEST(retain, sequence_numbers_become_0_at_the_bottom) {
  // A Delete above the snapshot stays only above an older entry.
  const std::vector<Key> keys = {key("a", 9, TYPE_DELETION, 0), key("a", 4, TYPE_VALUE, 1),
                                 key("b", 9, TYPE_DELETION, 2), key("c", 5, TYPE_VALUE, 3), key("d", 6, TYPE_VALUE, 4)};
  RetainRules rules = rules_with_snapshot();
  rules.num_levels = 0;
  rules.bottommost = 1;
  const RetainArgs args = args_for(keys, rules);
  RUN(retain, &args);
  EQUAL(show_keys(args.selected_rows, 4), "a@9.0#0 a@0.1#1 c@0.1#3 d@6.1#4");
  const RetainTotals totals = read(args.totals);
  EQUAL(totals.tombstones_dropped, 0);
  EQUAL(totals.hash_kept, hash_of(keys[0]) + hash_of(keys[1]) + hash_of(keys[3]) + hash_of(keys[4]));
  EQUAL(totals.rows_hash, hash_of(keys[0]) + hash_of(key("a", 0, TYPE_VALUE, 1)) + hash_of(key("c", 0, TYPE_VALUE, 3)) +
                              hash_of(keys[4]));
}

TEST(retain, a_single_delete_takes_the_next_older_put_along) {
  constexpr u64 SINGLE = TYPE_SINGLE_DELETION;
  const std::vector<Key> keys = {
      key("a", 3, SINGLE, 0), key("a", 2, TYPE_VALUE, 1),     // seen by all
      key("d", 9, SINGLE, 2), key("d", 8, TYPE_VALUE, 3),     // above the snapshot: both stay, without the value
      key("e", 9, SINGLE, 4), key("e", 8, TYPE_DELETION, 5),  // not allowed
      key("f", 4, TYPE_VALUE, 6)};
  RetainRules rules = rules_with_snapshot();
  rules.enforce_single_delete = 1;
  RetainArgs args = args_for(keys, rules);
  args.values = memory<ValueRef>(std::vector<ValueRef>(keys.size(), {0, 11}));
  args.one_by_one = 1;
  RUN(retain, &args);
  EQUALS(args.keep, 0, 0, 1, 1, 0, 0, 1);
  EQUAL(show_keys(args.selected_rows, 3), "d@9.7#2 d@8.1#3 f@4.1#6");
  EQUAL(read(args.values + 3).len, 0);
  EQUAL(read(args.values + 6).len, 11);
  EQUAL(read(args.hashes + 3), kv_hash(rapidhash(reinterpret_cast<const u8*>("d"), 1), rapidhash(nullptr, 0)));
  EQUAL(read(args.errors), error_of(4, ERROR_SINGLE_DELETE));
  const RetainTotals totals = read(args.totals);
  EQUAL(totals.kept, 3);
  EQUAL(totals.dropped, 4);
  EQUAL(totals.replaced, 2);
  EQUAL(totals.tombstones_dropped, 2);
}

TEST(retain, a_snapshot_with_number_0_sees_what_was_ingested_into_a_new_database) {
  // One by one, and all at once.
  for (const bool one_by_one : {true, false}) {
    const u64 newer = one_by_one ? TYPE_SINGLE_DELETION : TYPE_DELETION;
    const std::vector<Key> keys = {key("a", 1, newer, 0), key("a", 0, TYPE_VALUE, 1), key("b", 1, TYPE_DELETION, 2),
                                   key("b", 0, TYPE_VALUE, 3), key("c", 1, TYPE_DELETION, 4)};
    RetainRules rules{};
    rules.snapshots = memory<u64>({0});
    rules.num_snapshots = 1;
    rules.bottommost = 1;
    RetainArgs args = args_for(keys, rules);
    args.values = memory<ValueRef>(std::vector<ValueRef>(keys.size(), {0, 11}));
    args.one_by_one = one_by_one;
    RUN(retain, &args);
    EQUALS(args.keep, 1, 1, 1, 1, 0);
    EQUAL(read(args.values + 1).len, 11);
  }
}
