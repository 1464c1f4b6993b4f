// Copies rows contiguously: measure_rows, copy_rows.

#include "data.hpp"

namespace {

// Two short keys and a long one, with values in another order.
RowArgs rows() {
  Arena arena;
  const ValueRef third = arena.add("the third value"), first = arena.add("1"), second = arena.add("");
  RowArgs args{};
  args.arena = arena.upload();
  args.rows = memory<Key>({key("a", 1, TYPE_VALUE, 1), key("exactly 16 bytes", 1, TYPE_VALUE, 2),
                           key("a key of twenty byte", 1, TYPE_VALUE, 0)});
  args.n = 3;
  args.key_bytes = {memory("..a key of twenty byte" + std::string(ARENA_PADDING, 0)), memory<u64>({2, 99, 99})};
  args.values = memory<ValueRef>({third, first, second});
  args.sizes = room<u64>(4);
  args.offsets = room<u64>(4);
  return args;
}

}  // namespace

TEST(measure_rows, a_row_has_the_bytes_of_key_and_value) {
  const RowArgs args = rows();
  RUN(measure_rows, &args);
  EQUALS(args.sizes, 2, 16, 35);
  EQUALS(args.offsets, 0, 2, 18, 53);
}

TEST(copy_rows, rows_are_contiguous_from_the_first_one_on) {
  RowArgs args = rows();
  args.offsets = memory<u64>({0, 2, 18, 53});
  u8* out = room<u8>(53);
  RUN(copy_rows, &args, 0, 3, out);
  EQUAL(read_bytes(out, 53), "a1exactly 16 bytesa key of twenty bytethe third value");
  out = room<u8>(51);
  RUN(copy_rows, &args, 1, 3, out);
  EQUAL(read_bytes(out, 51), "exactly 16 bytesa key of twenty bytethe third value");
}
