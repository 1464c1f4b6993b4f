// Random histories on two databases of one RocksDB, one of them with Rockmill, give the same content, entries and table
// properties. The argument is an empty folder. ROCKMILL_SEED is the seed of the first history, and ROCKMILL_CASES their
// number; the next history has the next seed. Jobs run on the CPU and by a GPU's kernels on the host, or on the
// devices that ROCKMILL_TEST_DEVICE names.
//
// As in tests/src/differential.rs: while every flush is explicit and no job has run, both trees are equal, so one job
// has to give the same entries. After it, file boundaries differ, and only reads are compared, until everything is
// compacted without snapshots. Then all entries must be the same again. With snapshots, Rockmill may keep more of
// single-deleted keys than RocksDB, so these are only read.
#include "common.hpp"

#include <rocksdb/convenience.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/sst_partitioner.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/debug.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <sstream>

namespace {

constexpr const char* kDefaultHistories = "4";
constexpr int kSteps = 1600;
// Never full while flushes have to be explicit.
constexpr size_t kLargeBuffer = 4 << 20;

class Random {
 public:
  explicit Random(uint64_t seed) : numbers_(seed) {}
  uint64_t Below(uint64_t end) { return numbers_() % end; }
  bool OneIn(uint64_t count) { return Below(count) == 0; }
  template <class T>
  T Of(const std::vector<T>& all) {
    return all[Below(all.size())];
  }

 private:
  std::mt19937_64 numbers_;
};

// A column family: its options, and what may be written to it.
struct Family {
  rocksdb::ColumnFamilyOptions options;
  bool merges = false;
  bool deletes_ranges = false;
  int keys = 0;
  // Single-deleted keys are put once in between, as their contract requires.
  std::vector<bool> single_is_there = std::vector<bool>(60);

  static std::string Key(uint64_t number) {
    char key[32];
    snprintf(key, sizeof(key), "key%06llu", static_cast<unsigned long long>(number * 37));
    // Keys have several lengths and bytes that are not text.
    return key + std::string(number % 5, static_cast<char>(number * 11));
  }

  static std::string SingleKey(size_t number) { return "single" + std::to_string(number); }
  static bool IsSingle(const std::string& key) { return key.compare(0, 6, "single") == 0; }
};

// The format versions that this RocksDB writes.
std::vector<uint32_t> FormatVersions() {
  std::vector<uint32_t> versions;
  for (uint32_t version = 2; version < 20; ++version) {
    rocksdb::BlockBasedTableOptions table;
    table.format_version = version;
    const std::unique_ptr<rocksdb::TableFactory> factory(rocksdb::NewBlockBasedTableFactory(table));
    if (factory->ValidateOptions({}, {}).ok()) versions.push_back(version);
  }
  return versions;
}

// Sets an option that few databases have. Rockmill declines jobs with some of them.
std::string SetUnusual(Random* random, Family* family, rocksdb::BlockBasedTableOptions* table) {
  auto& options = family->options;
  switch (random->Below(8)) {
    case 0:
      family->merges = true;
      Check(rocksdb::MergeOperator::CreateFromString({}, "stringappend", &options.merge_operator));
      return "merge";
    case 1:
      family->deletes_ranges = true;
      return "delete ranges";
    case 2:
      table->index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
      table->partition_filters = random->OneIn(2);
      return "two-level index";
    case 3:
      table->data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
      return "hash in blocks";
    case 4:
      options.compression_opts.max_dict_bytes = 4096;
      options.compression_opts.zstd_max_train_bytes = random->OneIn(2) ? 1 << 16 : 0;
      return "dictionary";
    case 5:
      options.enable_blob_files = true;
      options.min_blob_size = 100;
      return "blobs";
    case 6:
      options.sst_partitioner_factory = rocksdb::NewSstPartitionerFixedPrefixFactory(6);
      return "partitioner";
    default:
      table->block_align = true;
      options.compression = options.bottommost_compression = rocksdb::kNoCompression;
      return "aligned blocks";
  }
}

Family Draw(Random* random, std::ostream& drawn) {
  Family family;
  family.keys = random->OneIn(2) ? 150 : 1000;
  auto& options = family.options;
  rocksdb::BlockBasedTableOptions table;
  std::vector<rocksdb::CompressionType> compressions;
  for (const auto compression : rocksdb::GetSupportedCompressions()) {
    if (compression <= rocksdb::kZSTD) compressions.push_back(compression);
  }
  options.compression = random->Of(compressions);
  if (random->OneIn(4)) options.bottommost_compression = random->Of(compressions);
  table.format_version = random->Of(FormatVersions());
  table.checksum = static_cast<rocksdb::ChecksumType>(random->Below(rocksdb::kXXH3 + 1));
  table.block_size = random->Of<size_t>({256, 1024, 4096, 16384});
  table.block_restart_interval = random->Of<int>({1, 3, 16});
  table.index_block_restart_interval = random->Of<int>({1, 1, 4});
  table.whole_key_filtering = !random->OneIn(4);
  const double bits = 2 + random->Below(160) / 10.0;
  const auto filter = random->Below(5);
  if (filter > 1) table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(bits));
  if (filter == 1) table.filter_policy.reset(rocksdb::NewRibbonFilterPolicy(bits));
  const auto prefix = random->Below(6);
  if (prefix == 0) options.prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(1 + random->Below(9)));
  if (prefix == 1) options.prefix_extractor.reset(rocksdb::NewCappedPrefixTransform(1 + random->Below(9)));
  options.optimize_filters_for_hits = random->OneIn(5);
  options.compaction_style = random->OneIn(3) ? rocksdb::kCompactionStyleUniversal : rocksdb::kCompactionStyleLevel;
  options.level_compaction_dynamic_level_bytes = random->OneIn(2);
  options.target_file_size_base = random->Of<uint64_t>({16 << 10, 64 << 10, 1 << 20});
  options.max_bytes_for_level_base = 256 << 10;
  options.num_levels = 3 + random->Below(5);
  options.paranoid_file_checks = random->OneIn(4);
  options.disable_auto_compactions = true;
  options.write_buffer_size = kLargeBuffer;
  drawn << "compression " << +options.compression << "/" << +options.bottommost_compression << " format "
        << table.format_version << " checksum " << +table.checksum << " filter " << filter << " prefix " << prefix
        << (options.compaction_style == rocksdb::kCompactionStyleUniversal ? " universal " : " ");
  if (random->OneIn(4)) {
    options.comparator = rocksdb::ReverseBytewiseComparator();
    drawn << "reverse ";
  }
  if (random->OneIn(4)) drawn << SetUnusual(random, &family, &table);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return family;
}

// A database, with or without Rockmill.
struct Side {
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  std::vector<const rocksdb::Snapshot*> snapshots;

  void Close() {
    for (auto* handle : handles) Check(db->DestroyColumnFamilyHandle(handle));
    handles.clear();
    db.reset();
  }
};

using Entries = std::vector<std::tuple<std::string, rocksdb::SequenceNumber, int, std::string>>;

// All versions of keys in the tree.
Entries AllEntries(const Side& side, size_t family, bool with_single) {
  std::vector<rocksdb::KeyVersion> versions;
  Check(rocksdb::GetAllKeyVersions(side.db.get(), side.handles[family], {}, {}, SIZE_MAX, &versions));
  Entries entries;
  constexpr int kBlobIndex = 0x11;  // Such a value names a file.
  for (auto& version : versions) {
    if (!with_single && Family::IsSingle(version.user_key)) continue;
    const bool is_blob = version.type == kBlobIndex;
    entries.emplace_back(version.user_key, version.sequence, version.type, is_blob ? "" : version.value);
  }
  return entries;
}

// The table properties that a job determines: sums, and values that occur in any of the tables.
struct Properties {
  std::string text;
  // Compression of a table with several blocks, if there is one: the property names the compressions used, and a small
  // block may be uncompressed.
  std::string compression;
};

Properties AllProperties(const Side& side, size_t family, bool has_blobs) {
  rocksdb::TablePropertiesCollection all;
  Check(side.db->GetPropertiesOfAllTables(side.handles[family], &all));
  std::map<std::string, uint64_t> sums;
  std::set<std::string> values;
  std::string compression;
  for (const auto& [file, table] : all) {
    sums["entries"] += table->num_entries;
    sums["deletions"] += table->num_deletions;
    sums["merge operands"] += table->num_merge_operands;
    sums["range deletions"] += table->num_range_deletions;
    sums["raw keys"] += table->raw_key_size;
    // Values that point to blobs contain numbers of files.
    if (!has_blobs) sums["raw values"] += table->raw_value_size;
    for (const auto& [name, value] : std::map<std::string, std::string>{
             {"family", table->column_family_name + std::to_string(table->column_family_id)},
             {"filter policy", table->filter_policy_name},
             {"comparator", table->comparator_name},
             {"merge operator", table->merge_operator_name},
             {"prefix extractor", table->prefix_extractor_name},
             {"collectors", table->property_collectors_names},
             {"compression options", table->compression_options},
             {"times", table->seqno_to_time_mapping},
             {"format", std::to_string(table->format_version)},
             {"fixed key", std::to_string(table->fixed_key_len)},
#if ROCKMILL_ROCKSDB_SINCE(8, 5)
             {"timestamps", std::to_string(table->user_defined_timestamps_persisted)},
#endif
             {"user keys in index", std::to_string(table->index_key_is_user_key)},
             {"deltas in index", std::to_string(table->index_value_is_delta_encoded)}}) {
      values.insert(name + "=" + value);
    }
    for (const auto& [name, value] : table->user_collected_properties) values.insert("collected " + name);
    if (table->num_data_blocks > 3) compression = table->compression_name;
  }
  std::ostringstream text;
  for (const auto& [name, sum] : sums) text << name << "=" << sum << "; ";
  for (const auto& value : values) text << value << "; ";
  return {text.str(), compression};
}

class History {
 public:
  History(uint64_t seed, const std::string& folder, const rockmill::Service& service)
      : random_(seed), folder_(folder), service_(service) {
    std::ostringstream drawn;
    const auto families = 1 + random_.Below(3);
    while (families_.size() < families) families_.push_back(Draw(&random_, drawn << "\n  "));
    has_file_checksums_ = random_.OneIn(3);
    std::filesystem::create_directories(folder_);
    // Not captured, so that it is printed even if RocksDB aborts the process.
    std::cerr << "seed " << seed << (has_file_checksums_ ? " with file checksums" : "") << drawn.str() << std::endl;
  }

  void Run() {
    Open(true);
    for (int step = 0; step < kSteps / 2; ++step) Write(true);
    for (size_t family = 0; family < families_.size(); ++family) OneJob(family);
    CompareReads();
    for (auto& side : sides_) {
      for (auto* handle : side.handles) {
        Check(side.db->SetOptions(handle, {{"disable_auto_compactions", "false"}, {"write_buffer_size", "131072"}}));
      }
    }
    for (int step = 0; step < kSteps; ++step) Write(false);
    Wait();
    CompareReads();
    while (!sides_[0].snapshots.empty()) Release(0);
    CompareCompacted();
    Reopen(true);
    for (int step = 0; step < kSteps / 2; ++step) Write(false);
    while (!sides_[0].snapshots.empty()) Release(0);
    Wait();
    CompareReads();
    // RocksDB reads and compacts Rockmill's files without Rockmill.
    Reopen(false);
    CompareReads();
    CompareCompacted();
    for (auto& side : sides_) side.Close();
  }

 private:
  void Open(bool with_rockmill) {
    for (const bool is_with : {false, true}) {
      rocksdb::DBOptions options;
      options.create_if_missing = true;
      options.create_missing_column_families = true;
      options.max_subcompactions = 2;
      options.max_background_jobs = 4;
      options.listeners.push_back(std::make_shared<NoBackgroundError>());
      if (has_file_checksums_) options.file_checksum_gen_factory = rocksdb::GetFileChecksumGenCrc32cFactory();
      if (is_with && with_rockmill) options.compaction_service = service_.Clone();
      std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
      for (size_t i = 0; i < families_.size(); ++i) {
        const std::string name = i == 0 ? rocksdb::kDefaultColumnFamilyName : "family" + std::to_string(i);
        descriptors.emplace_back(name, families_[i].options);
      }
      auto& side = sides_[is_with];
      side.db = ::Open(options, folder_ + (is_with ? "/with" : "/without"), descriptors, &side.handles);
    }
  }

  void Reopen(bool with_rockmill) {
    for (auto& side : sides_) side.Close();
    Open(with_rockmill);
  }

  template <class Work>
  void Both(Work work) {
    for (auto& side : sides_) Check(work(side));
  }

  void Write(bool only_flushes) {
    const size_t f = random_.Below(families_.size());
    Family& family = families_[f];
    const std::string key = Family::Key(random_.Below(family.keys));
    const auto kind = random_.Below(only_flushes ? 980 : 1000);
    const auto roll = random_.Below(1 << 20);
    if (kind < 600) {
      const char letter = static_cast<char>('a' + kind % 26);
      const std::string value = std::to_string(roll) + std::string(random_.Below(200), letter);
      Both([&](Side& side) { return side.db->Put({}, side.handles[f], key, value); });
    } else if (kind < 750) {
      Both([&](Side& side) { return side.db->Delete({}, side.handles[f], key); });
    } else if (kind < 850) {
      auto& singles = family.single_is_there;
      const size_t number = roll % singles.size();
      const std::string single = Family::SingleKey(number);
      Both([&](Side& side) {
        return singles[number] ? side.db->SingleDelete({}, side.handles[f], single)
                               : side.db->Put({}, side.handles[f], single, std::to_string(roll));
      });
      singles[number] = !singles[number];
    } else if (kind < 900 && family.merges) {
      Both([&](Side& side) { return side.db->Merge({}, side.handles[f], key, std::to_string(roll)); });
    } else if (kind < 905 && family.deletes_ranges) {
      const auto* order = family.options.comparator;
      std::string end = Family::Key(random_.Below(family.keys)), begin = key;
      if (order->Compare(begin, end) > 0) std::swap(begin, end);
      Both([&](Side& side) { return side.db->DeleteRange({}, side.handles[f], begin, end); });
    } else if (kind >= 955 && kind < 965) {
      Both([&](Side& side) { return side.db->Flush({}, side.handles[f]); });
    } else if (kind >= 965 && kind < 972 && sides_[0].snapshots.size() < 4) {
      for (auto& side : sides_) side.snapshots.push_back(side.db->GetSnapshot());
      Check(sides_[0].snapshots.back()->GetSequenceNumber() == sides_[1].snapshots.back()->GetSequenceNumber(),
            "the sequence numbers differ");
    } else if (kind >= 972 && kind < 976 && !sides_[0].snapshots.empty()) {
      Release(roll % sides_[0].snapshots.size());
    } else if (kind >= 996) {
      const rocksdb::Slice begin = key;
      const bool everything = random_.OneIn(3);
      Both([&](Side& side) {
        return side.db->CompactRange({}, side.handles[f], everything ? nullptr : &begin, nullptr);
      });
    }
  }

  void Release(size_t at) {
    for (auto& side : sides_) {
      side.db->ReleaseSnapshot(side.snapshots[at]);
      side.snapshots.erase(side.snapshots.begin() + at);
    }
  }

  void Wait() {
#if ROCKMILL_ROCKSDB_SINCE(8, 5)
    Both([](Side& side) { return side.db->WaitForCompact({}); });
#else
    // There is no call for it. A compaction that has not begun yet runs beside the next steps.
    for (auto& side : sides_) {
      uint64_t running = 1;
      while (side.db->GetAggregatedIntProperty("rocksdb.num-running-compactions", &running) && running > 0) {
      }
    }
#endif
  }

  // Compacts equal trees by one job into one level.
  void OneJob(size_t family) {
    Both([&](Side& side) {
      Check(side.db->Flush({}, side.handles[family]));
      rocksdb::CompactionOptions options;
      options.compression = rocksdb::kDisableCompressionOption;  // That of the column family.
      options.output_file_size_limit = families_[family].options.target_file_size_base;
      const int bottom = families_[family].options.num_levels - 1;
      return CompactFiles(side.db.get(), side.handles[family], bottom, options);
    });
    CompareEntries(family);
  }

  void CompareEntries(size_t family) {
    const bool all = sides_[0].snapshots.empty();
    const auto without = AllEntries(sides_[0], family, all), with = AllEntries(sides_[1], family, all);
    const auto differ = std::mismatch(without.begin(), without.end(), with.begin(), with.end());
    const auto describe = [](const Entries& entries, Entries::const_iterator at) {
      if (at == entries.end()) return std::string("the end");
      const auto& [key, sequence, type, value] = *at;
      return key + " @" + std::to_string(sequence) + " type " + std::to_string(type) + " " + value;
    };
    Check(without == with, "entries of family " + std::to_string(family) + ": " + describe(without, differ.first) +
                               ", with Rockmill " + describe(with, differ.second));
    if (!all) return;
    const bool has_blobs = families_[family].options.enable_blob_files;
    const auto theirs = AllProperties(sides_[0], family, has_blobs);
    const auto ours = AllProperties(sides_[1], family, has_blobs);
    const std::string place = " of family " + std::to_string(family) + ":\n";
    Check(theirs.text == ours.text, "properties" + place + theirs.text + "\nwith Rockmill:\n" + ours.text);
    Check(theirs.compression == ours.compression || theirs.compression.empty() || ours.compression.empty(),
          "compression" + place + theirs.compression + "\nwith Rockmill:\n" + ours.compression);
  }

  void CompareCompacted() {
    Wait();
    for (size_t family = 0; family < families_.size(); ++family) {
      // A pass may drop only the oldest tombstone of a key.
      for (auto& side : sides_) {
        Compact(side.db.get(), side.handles[family]);
        Compact(side.db.get(), side.handles[family]);
      }
      CompareEntries(family);
    }
    CompareReads();
    Both([](Side& side) { return side.db->VerifyChecksum(); });
    if (has_file_checksums_) Both([](Side& side) { return side.db->VerifyFileChecksums({}); });
  }

  // Compares the contents for readers, now and at each snapshot.
  void CompareReads() {
    for (size_t at = 0; at <= sides_[0].snapshots.size(); ++at) {
      for (size_t family = 0; family < families_.size(); ++family) {
        std::vector<std::pair<std::string, std::string>> contents[2];
        std::string lookups[2];
        for (const bool is_with : {false, true}) {
          const auto& side = sides_[is_with];
          rocksdb::ReadOptions options;
          options.total_order_seek = true;
          options.snapshot = at < side.snapshots.size() ? side.snapshots[at] : nullptr;
          contents[is_with] = Content(side.db.get(), options, side.handles[family]);
          options.total_order_seek = false;
          // Through filters, which must not hide a key.
          for (int number = 0; number < families_[family].keys + 10; ++number) {
            std::string value;
            const auto status = side.db->Get(options, side.handles[family], Family::Key(number), &value);
            Check(status.ok() || status.IsNotFound(), status.ToString());
            lookups[is_with] += status.ok() ? value + ";" : "-;";
          }
        }
        const std::string place = " of family " + std::to_string(family) + " at snapshot " + std::to_string(at);
        Check(contents[0] == contents[1], "the content" + place + " differs");
        Check(lookups[0] == lookups[1], "lookups" + place + " differ");
      }
    }
  }

  Random random_;
  const std::string folder_;
  const rockmill::Service& service_;
  bool has_file_checksums_ = false;
  std::vector<Family> families_;
  Side sides_[2];
};

}  // namespace

int main(int count, char** arguments) {
  Check(count == 2, "name a folder");
  const uint64_t first = std::stoull(FromEnvironment("ROCKMILL_SEED", "1"));
  const uint64_t histories = std::stoull(FromEnvironment("ROCKMILL_CASES", kDefaultHistories));
  rocksdb::Status status;
  const std::string devices = FromEnvironment("ROCKMILL_TEST_DEVICE", "cpu+cuda-on-host");
  const auto service = rockmill::NewCompactionService(
      {{"threads", "2"}, {"min_job_bytes", "0"}, {"device", devices}}, &status);
  Check(status);
  Check(service->WaitForDevice());
  for (uint64_t seed = first; seed < first + histories; ++seed) {
    History(seed, arguments[1] + ("/" + std::to_string(seed)), *service).Run();
  }
  const std::string stats = service->Stats();
  Check(Count(stats, "jobs_failed") == 0 && Count(stats, "jobs_done") > 0, stats);
  Check(Count(stats, "verification_failures") == 0, stats);
  std::istringstream names(devices);
  for (std::string name; std::getline(names, name, '+');) {
    Check(Subcompactions(stats, name) > 0, name + " did nothing: " + stats);
  }
  std::cout << "{\"rocksdb\":\"" << rocksdb::GetRocksVersionAsString() << "\",\"first_seed\":" << first
            << ",\"histories\":" << histories << ",\"stats\":" << stats << "}" << std::endl;
}
