// The stages of table.hpp. Written by `make boundary`.
#pragma once

#define ROCKMILL_STAGES(each) \
  each(check_blocks) \
  each(measure_raw) \
  each(decompress) \
  each(count_entries) \
  each(decode_entries) \
  each(hash_entries) \
  each(place_entries) \
  each(check_order) \
  each(trim_runs) \
  each(sum_input) \
  each(merge_runs) \
  each(measure_made) \
  each(make_values) \
  each(retain) \
  each(select_visible) \
  each(gather_visible) \
  each(measure_rows) \
  each(copy_rows) \
  each(measure_records) \
  each(insert_records) \
  each(count_unseen) \
  each(erase_missing) \
  each(rehash) \
  each(measure_chunks) \
  each(move_records) \
  each(look_up) \
  each(scan_filter) \
  each(scan_measure) \
  each(scan_fill) \
  each(scan_copy) \
  each(scan_group) \
  each(scan_take_groups) \
  each(scan_hash) \
  each(split) \
  each(measure_blocks) \
  each(place_raw) \
  each(compress_blocks) \
  each(sum_blocks) \
  each(measure_index) \
  each(sum_file) \
  each(most_deletions) \
  each(place_blocks) \
  each(write_blocks) \
  each(seal_blocks) \
  each(write_index) \
  each(build_filter) \
  each(decode_images) \
  each(verify_file)
#define ROCKMILL_NUM_STAGES 48
