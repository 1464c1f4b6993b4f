// Merges sorted runs: merge_runs.

#include "data.hpp"

TEST(merge_runs, runs_become_one_in_the_order_of_keys_newest_first) {
  Key* keys = memory<Key>({key("a", 5, TYPE_VALUE, 0), key("b", 7, TYPE_VALUE, 1), key("z", 1, TYPE_VALUE, 2),
                           // The second run.
                           key("0", 9, TYPE_VALUE, 3), key("a", 9, TYPE_VALUE, 4), key("ab", 1, TYPE_VALUE, 5),
                           // The third run.
                           key("a", 7, TYPE_VALUE, 6), key("b", 7, TYPE_VALUE, 7)});
  // Without z of the first run and 0 of the second one.
  const u32 trimmed[] = {0, 2, 4, 6, 6, 8};
  const KeyBytes narrow{};
  Key* merged;
  RUN(merge_runs, &narrow, keys, room<Key>(8), trimmed, 3, &merged);
  EQUAL(show_keys(merged, 6), "a@9.1#4 a@7.1#6 a@5.1#0 ab@1.1#5 b@7.1#1 b@7.1#7");
}

TEST(merge_runs, long_keys_are_compared_in_full) {
  const std::string same = "sixteen bytes ..";
  Key* keys = memory<Key>({key(same + "b", 1, TYPE_VALUE, 0), key(same + "aa", 1, TYPE_VALUE, 1)});
  const u32 trimmed[] = {0, 1, 1, 2};
  const std::string bytes = same + "b" + same + "aa";
  const KeyBytes wide{memory(bytes + std::string(ARENA_PADDING, 0)), memory<u64>({0, 17})};
  Key* merged;
  RUN(merge_runs, &wide, keys, room<Key>(2), trimmed, 2, &merged);
  EQUAL(show_keys(merged, 2), same + "@1.1#1 " + same + "@1.1#0");
}

TEST(merge_runs, a_single_run_moves_to_the_front) {
  Key* keys = memory<Key>({key("a", 1), key("b", 2), key("c", 3)});
  const u32 trimmed[] = {1, 3};
  const KeyBytes narrow{};
  Key* merged;
  RUN(merge_runs, &narrow, keys, room<Key>(3), trimmed, 1, &merged);
  EQUAL(show_keys(merged, 2), "b@2.1#0 c@3.1#0");
}
