// Objects that a program attaches are called as RocksDB calls them: a database with Rockmill has the content and the entries
// of one without it, and its operators are called with the same arguments. The argument is an empty folder. ROCKMILL_SEED is
// the seed of the first history, and ROCKMILL_CASES their number; the next history has the next seed. Two thirds of the
// databases have a GPU's kernels on the host as their device, or all have the one that ROCKMILL_TEST_DEVICE names. It does
// the jobs that call nothing of the program.
#include "common.hpp"

#include <rocksdb/convenience.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/debug.h>
#include <rocksdb/utilities/object_registry.h>
#include <rocksdb/utilities/table_properties_collectors.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <thread>

namespace {

constexpr const char* kDefaultHistories = "30";
constexpr uint64_t kKeys = 40;

// What the objects of a database were called with, while it is wanted. Calls of collectors have an order of their own: before
// a range tombstone above the bottom, RocksDB makes a file's collectors earlier than Rockmill.
class Calls {
 public:
  void Log(const std::string& call, bool is_of_collector = false) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_wanted_) (is_of_collector ? of_collectors_ : all_) += call + "\n";
  }

  void Begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_wanted_ = true;
    all_.clear();
    of_collectors_.clear();
  }

  std::string End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_wanted_ = false;
    return all_ + of_collectors_;
  }

 private:
  std::mutex mutex_;
  bool is_wanted_ = false;
  std::string all_, of_collectors_;
};

class Joined : public rocksdb::AssociativeMergeOperator {
 public:
  explicit Joined(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
  const char* Name() const override { return "Joined"; }

  bool Merge(const rocksdb::Slice& key, const rocksdb::Slice* existing, const rocksdb::Slice& value, std::string* made,
             rocksdb::Logger* logger) const override {
    Check(logger != nullptr, "no logger");
    const std::string base = existing != nullptr ? existing->ToString() : "none";
    calls_->Log("merge " + key.ToString() + " " + base + " + " + value.ToString());
    *made = (existing != nullptr ? base + "," : "") + value.ToString();
    return true;
  }

 private:
  const std::shared_ptr<Calls> calls_;
};

// Merges some keys partially, and refuses to merge others.
class Picky : public rocksdb::MergeOperator {
 public:
  Picky(std::shared_ptr<Calls> calls, bool takes_single) : calls_(std::move(calls)), takes_single_(takes_single) {}
  // Before 10.0 a job's message has options in a text that such a name makes ambiguous.
  const char* Name() const override { return ROCKMILL_ROCKSDB_SINCE(10, 0) ? "Picky;{}" : "Picky"; }

  bool FullMergeV2(const MergeOperationInput& in, MergeOperationOutput* out) const override {
    std::string call = "full " + in.key.ToString() + " " + (in.existing_value ? in.existing_value->ToString() : "none");
    for (const auto& operand : in.operand_list) call += " + " + operand.ToString();
    calls_->Log(call);
#if ROCKMILL_ROCKSDB_SINCE(8, 1)
    if (Number(in.key) % 7 == 3 && must_not_.load()) {
      out->op_failure_scope = OpFailureScope::kMustMerge;
      return false;
    }
#endif
    if (in.existing_value == nullptr && in.operand_list.size() == 1) {
      out->existing_operand = in.operand_list.front();
      return true;
    }
    out->new_value = "(" + (in.existing_value ? in.existing_value->ToString() : "") + ")";
    for (const auto& operand : in.operand_list) out->new_value += operand.ToString();
    return true;
  }

  bool PartialMergeMulti(const rocksdb::Slice& key, const std::deque<rocksdb::Slice>& operands, std::string* made,
                         rocksdb::Logger*) const override {
    std::string call = "partial " + key.ToString();
    for (const auto& operand : operands) call += " + " + operand.ToString();
    calls_->Log(call);
    if (Number(key) % 3 == 0) return false;
    made->clear();
    for (const auto& operand : operands) *made += operand.ToString();
    return true;
  }

  bool AllowSingleOperand() const override { return takes_single_; }

  // Whether compactions must not merge some keys; reads always do.
  static std::atomic<bool> must_not_;

 private:
  static uint64_t Number(const rocksdb::Slice& key) { return std::stoull(key.ToString().substr(3)); }

  const std::shared_ptr<Calls> calls_;
  const bool takes_single_;
};

std::atomic<bool> Picky::must_not_{false};

// Decides by what an entry is, in all ways.
class Sieve : public rocksdb::CompactionFilter {
 public:
  explicit Sieve(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
  const char* Name() const override { return "Sieve"; }

  Decision FilterV2(int level, const rocksdb::Slice& key, ValueType type, const rocksdb::Slice& value,
                    std::string* made, std::string* skip_until) const override {
    calls_->Log("filter " + std::to_string(level) + " " + key.ToString() + " " + std::to_string(type) + " " +
                value.ToString());
    const size_t drawn = std::hash<std::string>()(key.ToString() + value.ToString()) % 24;
    // These were put once and never deleted.
    if (key.starts_with("once")) return drawn < 8 ? Decision::kPurge : Decision::kKeep;
    if (drawn < 3) return Decision::kRemove;
    if (drawn < 6) {
      *made = value.size() > 20 ? "" : value.ToString() + "!";
      return Decision::kChangeValue;
    }
    if (drawn == 6) {
      const auto number = std::stoll(key.ToString().substr(3));
      // It may be the key itself, or one before it: then the entry stays.
      char until[32];
      snprintf(until, sizeof(until), "key%05lld", std::max(0LL, number - 2 + static_cast<long long>(value.size())));
      *skip_until = until;
      return Decision::kRemoveAndSkipUntil;
    }
    return Decision::kKeep;
  }

 private:
  const std::shared_ptr<Calls> calls_;
};

class Sieves : public rocksdb::CompactionFilterFactory {
 public:
  explicit Sieves(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
  const char* Name() const override { return "Sieves"; }

  std::unique_ptr<rocksdb::CompactionFilter> CreateCompactionFilter(
      const rocksdb::CompactionFilter::Context& context) override {
    std::string call = "create " + std::to_string(context.is_full_compaction) +
                       std::to_string(context.is_manual_compaction) + " " + std::to_string(context.column_family_id) +
                       " " + std::to_string(static_cast<int>(context.reason));
#if ROCKMILL_ROCKSDB_SINCE(8, 8)
    call += " " + std::to_string(context.input_start_level) + " " +
            std::to_string(context.input_table_properties.size());
    std::multiset<uint64_t> entries;
    for (const auto& table : context.input_table_properties) {
      // Rockmill clips tombstones to files, so there may be another number of them.
      entries.insert(table.second->num_entries - table.second->num_range_deletions);
    }
    for (const auto number : entries) call += " " + std::to_string(number);
#endif
    calls_->Log(call);
    // Not for every job.
    if (++made_ % 5 == 0) return nullptr;
    return std::make_unique<Sieve>(calls_);
  }

 private:
  const std::shared_ptr<Calls> calls_;
  int made_ = 0;
};

// Hashes all that it is shown into a property, and wants some files compacted again.
class Hashes : public rocksdb::TablePropertiesCollector {
 public:
  explicit Hashes(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
  ~Hashes() override { --alive_; }
  const char* Name() const override { return "Hashes"; }

  rocksdb::Status AddUserKey(const rocksdb::Slice& key, const rocksdb::Slice& value, rocksdb::EntryType type,
                             rocksdb::SequenceNumber sequence, uint64_t) override {
    // Tombstones are cut otherwise.
    if (type == rocksdb::kEntryRangeDeletion) return rocksdb::Status::OK();
    seen_ += "entry " + key.ToString() + " " + std::to_string(type) + " @" + std::to_string(sequence) + " " +
             value.ToString() + "\n";
    // RocksDB only logs it.
    return rocksdb::Status::Corruption("on purpose");
  }

  void BlockAdd(uint64_t uncompressed, uint64_t, uint64_t) override { blocks_ += uncompressed > 0; }

  rocksdb::Status Finish(rocksdb::UserCollectedProperties* properties) override {
    // RocksDB before 8.10 calls it again.
    if (!is_finished_) calls_->Log(seen_ + "file", true);
    is_finished_ = true;
    Check(seen_.empty() || blocks_ > 0, "no block was told");
    const auto hash = std::hash<std::string>()(seen_);
    (*properties)["hash"] = std::to_string(hash);
    return hash % 7 == 0 ? rocksdb::Status::Aborted("on purpose") : rocksdb::Status::OK();
  }

  rocksdb::UserCollectedProperties GetReadableProperties() const override { return {{"readable", "yes"}}; }
  bool NeedCompact() const override { return false; }

  static std::atomic<int> alive_;

 private:
  const std::shared_ptr<Calls> calls_;
  std::string seen_;
  int blocks_ = 0;
  bool is_finished_ = false;
};

std::atomic<int> Hashes::alive_{0};

class HashesFactory : public rocksdb::TablePropertiesCollectorFactory {
 public:
  explicit HashesFactory(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
  const char* Name() const override { return "HashesFactory"; }

  rocksdb::TablePropertiesCollector* CreateTablePropertiesCollector(Context context) override {
    std::string call = "collector " + std::to_string(context.column_family_id) + " " +
                       std::to_string(context.level_at_creation);
#if ROCKMILL_ROCKSDB_SINCE(10, 0)
    call += " " + std::to_string(context.num_levels) + " " +
            std::to_string(context.last_level_inclusive_max_seqno_threshold);
#endif
    calls_->Log(call, true);
    ++Hashes::alive_;
    return new Hashes(calls_);
  }

 private:
  const std::shared_ptr<Calls> calls_;
};

// Orders keys as one of RocksDB's comparators does, under a name of its own.
class Ordered : public rocksdb::Comparator {
 public:
  explicit Ordered(bool is_reverse) : is_reverse_(is_reverse) {}
  const char* Name() const override { return is_reverse_ ? "rev:Ordered" : "Ordered"; }
  int Compare(const rocksdb::Slice& a, const rocksdb::Slice& b) const override {
    return is_reverse_ ? b.compare(a) : a.compare(b);
  }
  void FindShortestSeparator(std::string*, const rocksdb::Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}

 private:
  const bool is_reverse_;
};

// Orders keys by the numbers that they are.
class Numeric : public rocksdb::Comparator {
 public:
  const char* Name() const override { return "Numeric"; }
  int Compare(const rocksdb::Slice& a, const rocksdb::Slice& b) const override {
    const auto first = std::stoull(a.ToString()), second = std::stoull(b.ToString());
    return first < second ? -1 : first > second;
  }
  void FindShortestSeparator(std::string*, const rocksdb::Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}
};

std::string Key(uint64_t number) {
  char key[16];
  snprintf(key, sizeof(key), "key%05llu", static_cast<unsigned long long>(number));
  return key;
}

rocksdb::Options Quiet() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.disable_auto_compactions = true;
  options.num_levels = 4;
  options.level_compaction_dynamic_level_bytes = false;
  options.write_buffer_size = 256 << 10;
  options.listeners.push_back(std::make_shared<NoBackgroundError>());
  return options;
}

// A service that takes all jobs. Those with another number of threads have another engine.
std::shared_ptr<rockmill::Service> Attached(rocksdb::Options* options, const std::string& threads) {
  rocksdb::Status status;
  auto service = rockmill::Attach(options, {{"min_job_bytes", "0"}, {"threads", threads}}, &status);
  Check(status);
  return service;
}

struct Side {
  std::shared_ptr<Calls> calls = std::make_shared<Calls>();
  rocksdb::Options options;
  std::unique_ptr<rocksdb::DB> db;
  std::vector<const rocksdb::Snapshot*> snapshots;
};

std::string Entries(rocksdb::DB* db) {
  std::vector<rocksdb::KeyVersion> versions;
  Check(rocksdb::GetAllKeyVersions(db, {}, {}, SIZE_MAX, &versions));
  std::ostringstream all;
  for (const auto& one : versions) {
    all << one.user_key << " @" << one.sequence << " type " << one.type << " " << one.value << "\n";
  }
  return all.str();
}

std::string FirstDifference(const std::string& one, const std::string& other) {
  std::istringstream lines[] = {std::istringstream(one), std::istringstream(other)};
  std::string line[2];
  for (;;) {
    const bool is_there[] = {static_cast<bool>(std::getline(lines[0], line[0])),
                             static_cast<bool>(std::getline(lines[1], line[1]))};
    if (!is_there[0]) line[0] = "the end";
    if (!is_there[1]) line[1] = "the end";
    if (line[0] != line[1]) return line[0] + "\nwith Rockmill\n" + line[1];
    if (!is_there[0]) return "none";
  }
}

// Whether a setting states the order of a history's comparator. Without it, Rockmill asks the comparator, on the CPU.
bool StatesOrder(uint64_t seed) { return seed % 2 == 0; }

// The same random operations on a database with Rockmill and one without.
class History {
 public:
  using Prepare = std::function<void(rocksdb::Options*, std::shared_ptr<Calls>)>;

  // A job of CompactFiles is declined if it needs a filter.
  History(uint64_t seed, const std::string& folder, bool compacts_files, const Prepare& prepare)
      : place_("ROCKMILL_SEED=" + std::to_string(seed) + ": "),
        folder_(folder),
        random_(seed),
        compacts_files_(compacts_files) {
    for (const bool is_with : {false, true}) {
      auto& options = sides_[is_with].options = Quiet();
      prepare(&options, sides_[is_with].calls);
      comparator_ = options.comparator;
      rocksdb::Status status;
      std::map<std::string, std::string> settings = {
          {"threads", "2"}, {"min_job_bytes", "0"}, {"device", DeviceOf(seed)}};
      if (StatesOrder(seed)) settings["comparator"] = "Ordered=bytewise+rev:Ordered=reverse";
      if (is_with) service_ = rockmill::Attach(&options, settings, &status);
      Check(status);
      if (is_with) Check(service_->WaitForDevice());
      sides_[is_with].db = Open(options, folder + "/" + std::to_string(seed) + (is_with ? "with" : "without"));
    }
  }

  // Writes, and compacts now and then. Returns the number of compactions.
  int Run(int rounds) {
    int compactions = 0;
    for (int round = 0; round < rounds; ++round) {
      for (int step = 0; step < 60; ++step) Step(round * 100 + step);
      Both([](Side& side) { Check(side.db->Flush({})); });
      if (Below(3) > 0) {
        Compact();
        ++compactions;
      }
      CompareReads();
    }
    ReleaseAll();
    Compact();
    CompareReads();
    return compactions + 1;
  }

  rockmill::Service& Service() { return *service_; }
  // The hash of each file, and what was reported beside it.
  static std::string Collected(rocksdb::DB* db) {
    rocksdb::TablePropertiesCollection tables;
    Check(db->GetPropertiesOfAllTables(&tables));
    std::multiset<std::string> all;
    for (const auto& table : tables) {
      const auto& properties = table.second->user_collected_properties;
      const auto hash = properties.find("hash");
      all.insert(table.second->property_collectors_names + (hash != properties.end() ? hash->second : "none"));
    }
    std::string text;
    for (const auto& one : all) text += one + "\n";
    return text;
  }

  // Calls of compactions with Rockmill.
  uint64_t Calls() const { return calls_; }

 private:
  uint64_t Below(uint64_t end) { return random_() % end; }

  void Both(const std::function<void(Side&)>& work) {
    for (auto& side : sides_) work(side);
  }

  // A key, most keys, or all of them.
  void DeleteRange() {
    const auto width = Below(8);
    const auto number = Below(kKeys);
    std::string begin = width == 0 ? "key" : Key(number);
    std::string end = width == 0 ? "kez" : Key(width < 3 ? number + 1 : Below(kKeys));
    if (comparator_->Compare(begin, end) > 0) std::swap(begin, end);
    Both([&](Side& side) { Check(side.db->DeleteRange({}, side.db->DefaultColumnFamily(), begin, end)); });
  }

  // Ingests a file with entries of all kinds. With a snapshot, it always gets a sequence number.
  void Ingest(const std::string& value) {
    std::vector<std::string> keys;
    for (uint64_t number = Below(kKeys); number < kKeys; number += 1 + Below(9)) keys.push_back(Key(number));
    const auto is_before = [&](const std::string& a, const std::string& b) { return comparator_->Compare(a, b) < 0; };
    std::sort(keys.begin(), keys.end(), is_before);
    const auto kinds = Below(1 << 20);
    const bool deletes_range = Below(4) == 0 && keys.size() > 1;
    Both([&](Side& side) {
      const std::string path = folder_ + "/ingested.sst";
      rocksdb::SstFileWriter writer({}, side.options);
      Check(writer.Open(path));
      for (size_t at = 0; at < keys.size(); ++at) {
        const auto kind = (kinds >> (at % 10 * 2)) & 3;
        const bool merges = kind == 1 && side.options.merge_operator != nullptr;
        Check(kind == 0 ? writer.Delete(keys[at]) : merges ? writer.Merge(keys[at], value) : writer.Put(keys[at], value));
      }
      if (deletes_range) Check(writer.DeleteRange(keys.front(), keys.back()));
      Check(writer.Finish());
      const auto* snapshot = side.db->GetSnapshot();
      Check(side.db->IngestExternalFile({path}, {}));
      side.db->ReleaseSnapshot(snapshot);
    });
  }

  void Step(int number) {
    const std::string key = Key(Below(kKeys)), value = "v" + std::to_string(number);
    switch (Below(20)) {
      case 0:
      case 1:
      case 2:
        return Both([&](Side& side) { Check(side.db->Put({}, key, value)); });
      case 3:
        return Both([&](Side& side) { Check(side.db->Delete({}, key)); });
      case 4:
        if (Below(6) == 0) DeleteRange();
        return;
      case 5:
        return Both([&](Side& side) {
          if (side.snapshots.size() < 4) side.snapshots.push_back(side.db->GetSnapshot());
        });
      case 6:
        if (!sides_[0].snapshots.empty()) {
          const size_t at = Below(sides_[0].snapshots.size());
          Both([&](Side& side) {
            side.db->ReleaseSnapshot(side.snapshots[at]);
            side.snapshots.erase(side.snapshots.begin() + static_cast<long>(at));
          });
        }
        return;
      case 7:
        return Both([&](Side& side) { Check(side.db->Flush({})); });
      case 8:
        return Both([&](Side& side) { Check(side.db->Put({}, "once" + value, value)); });
      case 9:
        if (Below(8) == 0) return Ingest(value);
        [[fallthrough]];
      default:
        return Both([&](Side& side) { Check(side.db->Merge({}, key, value)); });
    }
  }

  void ReleaseAll() {
    Both([](Side& side) {
      for (const auto* snapshot : side.snapshots) side.db->ReleaseSnapshot(snapshot);
      side.snapshots.clear();
    });
  }

  void Compact() {
    // To the next level, above the bottom, or to the bottom.
    const bool to_bottom = Below(2) == 0 || !compacts_files_;
    Picky::must_not_ = true;
    std::string calls[2];
    for (const bool is_with : {false, true}) {
      auto& side = sides_[is_with];
      side.calls->Begin();
      if (to_bottom) {
        ::Compact(side.db.get());
      } else {
        rocksdb::CompactionOptions options;
        options.compression = rocksdb::kDisableCompressionOption;
        Check(CompactFiles(side.db.get(), side.db->DefaultColumnFamily(), 1, options));
      }
      calls[is_with] = side.calls->End();
    }
    Picky::must_not_ = false;
    calls_ += static_cast<uint64_t>(std::count(calls[1].begin(), calls[1].end(), '\n'));
    Check(calls[0] == calls[1], place_ + "calls differ: " + FirstDifference(calls[0], calls[1]));
    const std::string entries[] = {Entries(sides_[0].db.get()), Entries(sides_[1].db.get())};
    const std::string collected[] = {Collected(sides_[0].db.get()), Collected(sides_[1].db.get())};
    Check(collected[0] == collected[1], place_ + "properties differ: " + FirstDifference(collected[0], collected[1]));
    Check(entries[0] == entries[1], place_ + "entries differ: " + FirstDifference(entries[0], entries[1]));
  }

  void CompareReads() {
    for (size_t at = 0; at <= sides_[0].snapshots.size(); ++at) {
      std::vector<std::pair<std::string, std::string>> contents[2];
      for (const bool is_with : {false, true}) {
        const auto& side = sides_[is_with];
        rocksdb::ReadOptions options;
        options.snapshot = at < side.snapshots.size() ? side.snapshots[at] : nullptr;
        contents[is_with] = Content(side.db.get(), options);
      }
      Check(contents[0] == contents[1], place_ + "reads at snapshot " + std::to_string(at) + " differ");
    }
  }

  const std::string place_;
  const std::string folder_;
  std::mt19937_64 random_;
  const bool compacts_files_;
  const rocksdb::Comparator* comparator_ = nullptr;
  Side sides_[2];
  std::shared_ptr<rockmill::Service> service_;
  uint64_t calls_ = 0;
};

uint64_t Declined(const rockmill::Service& service, const std::string& reason) {
  const std::string stats = service.Stats();
  return stats.find("\"" + reason + "\":") != std::string::npos ? Count(stats, reason) : 0;
}

// The first half of longer keys. It may be told to return other bytes once.
class Halves : public rocksdb::SliceTransform {
 public:
  const char* Name() const override { return "Halves"; }
  bool InDomain(const rocksdb::Slice& key) const override { return key.size() > 3; }
  rocksdb::Slice Transform(const rocksdb::Slice& key) const override {
    if (is_wrong.exchange(false)) return "wrong";
    return {key.data(), key.size() / 2};
  }

  mutable std::atomic<bool> is_wrong{false};
};

// Sets filters with these prefixes.
void SetPrefixes(rocksdb::Options* options, std::shared_ptr<Halves> halves, bool are_partitioned) {
  rocksdb::BlockBasedTableOptions table;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.metadata_block_size = 200;
  table.partition_filters = are_partitioned;
  if (are_partitioned) table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  options->table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options->prefix_extractor = std::move(halves);
}

void PrefixesOfTheProgram(const std::string& folder) {
  for (const bool are_partitioned : {false, true}) {
    auto options = Quiet();
    const auto halves = std::make_shared<Halves>();
    SetPrefixes(&options, halves, are_partitioned);
    const auto service = Attached(&options, "10");
    const auto done = Count(service->Stats(), "jobs_done"), failed = Declined(*service, "plugin-failed");
    auto db = Open(options, folder + "/prefixes" + std::to_string(are_partitioned));
    const auto write = [&] {
      for (int file = 0; file < 2; ++file) {
        for (uint64_t key = 0; key < 1000; ++key) Check(db->Put({}, std::to_string(key * 37), "value"));
        Check(db->Flush({}));
      }
    };
    write();
    Compact(db.get());
    Check(Count(service->Stats(), "jobs_done") > done, service->Stats() + service->LastError());
    Check(Count(service->Stats(), "jobs_declined") == failed, service->Stats());
    rocksdb::ReadOptions read;
    read.prefix_same_as_start = true;
    std::unique_ptr<rocksdb::Iterator> it(db->NewIterator(read));
    for (uint64_t key = 0; key < 1000; ++key) {
      const auto text = std::to_string(key * 37);
      it->Seek(text);
      Check(it->Valid() && it->key() == text, "a search finds no " + text);
    }
    it.reset();
    rocksdb::TablePropertiesCollection tables;
    Check(db->GetPropertiesOfAllTables(&tables));
    for (const auto& table : tables) {
      Check(table.second->prefix_extractor_name == "Halves" && table.second->num_filter_entries > 1000,
            table.second->ToString());
    }
    write();
    halves->is_wrong = true;
    Compact(db.get());
    Check(!halves->is_wrong && Declined(*service, "plugin-failed") == failed + 1, service->Stats());
  }
}

// The parts of the database of a seed, each drawn alone.
class Shape {
 public:
  explicit Shape(uint64_t seed) : random_(~seed) {
    const bool is_of_rocksdb = Below(2) == 0;
    operator_ = Below(is_of_rocksdb ? 5 : 8);
    comparator_ = Below(2) == 0 ? 0 : Below(4);
    collects_deletions_ = Below(2) == 0;
    if (is_of_rocksdb) return;
    filter_ = Below(3);
    prefixes_ = Below(4);
    collects_hashes_ = Below(2) == 0;
  }

  // Whether its jobs call nothing of the program, and a GPU's kernels know the order of keys.
  bool IsForKernels(uint64_t seed) const {
    const bool is_in_bytes = comparator_ == 0 || (comparator_ == 2 && StatesOrder(seed));
    return operator_ < 5 && filter_ == 0 && prefixes_ < 2 && !collects_hashes_ && is_in_bytes;
  }
  bool HasFilter() const { return filter_ != 0; }

  void Prepare(rocksdb::Options* options, std::shared_ptr<Calls> calls) {
    const char* own[] = {"stringappend", "uint64add", "max", "bytesxor", "put"};
    if (operator_ < 5) Check(rocksdb::MergeOperator::CreateFromString({}, own[operator_], &options->merge_operator));
    if (operator_ == 5) options->merge_operator = std::make_shared<Joined>(calls);
    if (operator_ > 5) options->merge_operator = std::make_shared<Picky>(calls, operator_ == 7);
    static const Ordered forward(false), reverse(true);
    const rocksdb::Comparator* comparators[] = {options->comparator, rocksdb::ReverseBytewiseComparator(), &forward,
                                                &reverse};
    options->comparator = comparators[comparator_];
    if (filter_ == 1) options->compaction_filter = filters_.emplace_back(std::make_unique<Sieve>(calls)).get();
    if (filter_ == 2) options->compaction_filter_factory = std::make_shared<Sieves>(calls);
    if (prefixes_ > 1) SetPrefixes(options, std::make_shared<Halves>(), prefixes_ == 3);
    auto& collectors = options->table_properties_collector_factories;
    if (collects_deletions_) collectors.push_back(rocksdb::NewCompactOnDeletionCollectorFactory(16, 12));
    if (collects_hashes_) collectors.push_back(std::make_shared<HashesFactory>(calls));
  }

 private:
  uint64_t Below(uint64_t end) { return random_() % end; }

  std::mt19937_64 random_;
  uint64_t operator_ = 0, comparator_ = 0, filter_ = 0, prefixes_ = 0;
  bool collects_deletions_ = false, collects_hashes_ = false;
  std::vector<std::unique_ptr<Sieve>> filters_;
};

void RandomHistories(const std::string& folder) {
  const uint64_t first = std::stoull(FromEnvironment("ROCKMILL_SEED", "1"));
  const uint64_t histories = std::stoull(FromEnvironment("ROCKMILL_CASES", kDefaultHistories));
  uint64_t done = 0, called = 0, on_devices = 0;
  for (uint64_t seed = first; seed < first + histories; ++seed) {
    Shape shape(seed);
    const auto prepare = [&](rocksdb::Options* options, std::shared_ptr<Calls> calls) { shape.Prepare(options, calls); };
    // A compaction of files is not announced, and RocksDB before 10.4 does not name the column family of a job.
    History history(seed, folder, !shape.HasFilter() && ROCKMILL_ROCKSDB_SINCE(10, 4), prepare);
    history.Run(6);
    const std::string stats = history.Service().Stats(), place = "ROCKMILL_SEED=" + std::to_string(seed) + ": ";
    const bool all_done = Count(stats, "jobs_failed") == 0 && Count(stats, "jobs_declined") == 0;
    Check(all_done && Count(stats, "verification_failures") == 0, place + stats);
    done += Count(stats, "jobs_done");
    called += history.Calls();
    if (DeviceOf(seed) == "cpu") continue;
    Check(!shape.IsForKernels(seed) || Subcompactions(stats, "cpu") == 0, place + stats);
    on_devices += Subcompactions(stats, DeviceOf(seed));
  }
  Check(Hashes::alive_ == 0, "a collector is left");
  std::cout << done << " jobs done, " << on_devices << " subcompactions on devices, " << called << " calls\n";
  const bool are_few = histories < std::stoull(kDefaultHistories);
  Check(done > histories && (are_few || (called > 0 && on_devices > 0)), "too little was done");
}

// Fails in the way and as often as it is told.
class Failing : public rocksdb::AssociativeMergeOperator {
 public:
  enum class Way { kNone, kFalse, kThrow, kLarge };
  const char* Name() const override { return "Failing"; }

  bool Merge(const rocksdb::Slice&, const rocksdb::Slice*, const rocksdb::Slice& value, std::string* made,
             rocksdb::Logger*) const override {
    if (times.load() > 0) {
      --times;
      if (way == Way::kFalse) return false;
      if (way == Way::kThrow) throw std::runtime_error("an operator throws");
      if (way == Way::kLarge) made->assign(9 << 20, 'x');
      return true;
    }
    *made = value.ToString();
    return true;
  }

  Way way = Way::kNone;
  mutable std::atomic<int> times{0};
};


// An operator that fails makes RocksDB do the job.
void FailuresAreDeclines(const std::string& folder) {
  auto failing = std::make_shared<Failing>();
  auto options = Quiet();
  options.merge_operator = failing;
  const auto service = Attached(&options, "1");
  auto db = Open(options, folder + "/failing");
  for (const auto way : {Failing::Way::kFalse, Failing::Way::kThrow, Failing::Way::kLarge}) {
    for (int file = 0; file < 2; ++file) {
      Check(db->Merge({}, "key", "value" + std::to_string(file)));
      Check(db->Flush({}));
    }
    const auto failed = Declined(*service, "plugin-failed"), large = Declined(*service, "memory-budget");
    failing->way = way;
    failing->times = way == Failing::Way::kLarge ? 2 : 1;
    Compact(db.get());
    Check(failing->times == 0, "the operator was not called");
    const bool is_large = way == Failing::Way::kLarge;
    Check(Declined(*service, "plugin-failed") == failed + !is_large, service->Stats());
    Check(Declined(*service, "memory-budget") == large + is_large, service->Stats());
    std::string value;
    Check(db->Get({}, "key", &value));
    Check(value == "value1", value);
  }
}

void Merges(rocksdb::DB* db, rocksdb::ColumnFamilyHandle* family) {
  for (int file = 0; file < 2; ++file) {
    Check(db->Merge({}, family, "key", "v" + std::to_string(file)));
    Check(db->Flush({}, family));
  }
  Compact(db, family);
}

// Behaves as it is told, once.
class Wild : public rocksdb::CompactionFilter {
 public:
  enum class Way { kNone, kThrow, kUndetermined, kBlob, kBeyond, kReads, kLarge };
  const char* Name() const override { return "Wild"; }

  Decision FilterV2(int, const rocksdb::Slice& key, ValueType, const rocksdb::Slice&, std::string* made,
                    std::string* skip_until) const override {
    const Way now = is_always_large ? Way::kLarge : way.exchange(Way::kNone);
    if (now == Way::kThrow) throw std::runtime_error("a filter throws");
    if (now == Way::kUndetermined) return Decision::kUndetermined;
    if (now == Way::kBlob) return Decision::kChangeBlobIndex;
    if (now == Way::kBeyond) {
      *skip_until = "zzz";
      return Decision::kRemoveAndSkipUntil;
    }
    if (now == Way::kReads) {
      Check(db->Get({}, key, made));
      return Decision::kKeep;
    }
    if (now == Way::kLarge) {
      made->assign(9 << 20, 'x');
      return Decision::kChangeValue;
    }
    return Decision::kKeep;
  }

  bool IgnoreSnapshots() const override { return ignores_snapshots; }

  mutable std::atomic<Way> way{Way::kNone};
  bool ignores_snapshots = true;
  // RocksDB writes what is too large for Rockmill.
  std::atomic<bool> is_always_large{false};
  rocksdb::DB* db = nullptr;
};

// A filter may fail, skip what there is not, and read the database.
void WildFilters(const std::string& folder) {
  Wild filter;
  auto options = Quiet();
  options.compaction_filter = &filter;
  const auto service = Attached(&options, "5");
  auto db = Open(options, folder + "/wild");
  filter.db = db.get();
  const auto write = [&] {
    for (int file = 0; file < 2; ++file) {
      for (int key = 0; key < 10; ++key) Check(db->Put({}, Key(static_cast<uint64_t>(key)), std::to_string(file)));
      Check(db->Flush({}));
    }
  };
  uint64_t again = 0;
  for (const auto way : {Wild::Way::kThrow, Wild::Way::kUndetermined, Wild::Way::kBlob, Wild::Way::kLarge}) {
    write();
    filter.way = way;
    Compact(db.get());
    Check(filter.way.load() == Wild::Way::kNone, "the filter was not called");
    // RocksDB has shown the same keys to a filter again.
    Check(Count(service->Stats(), "jobs_filtered_again") == ++again, service->Stats());
    Check(Content(db.get()).size() == 10, "a key is lost");
    // A job that is done in between.
    write();
    Compact(db.get());
  }
  Check(Declined(*service, "plugin-failed") == 3 && Declined(*service, "memory-budget") == 1, service->Stats());
  // After two jobs in a row that have failed, the filter of the next one does not see keys in vain.
  filter.is_always_large = true;
  for (int round = 0; round < 3; ++round) {
    write();
    Compact(db.get());
  }
  filter.is_always_large = false;
  const uint64_t tried = Count(service->Stats(), "jobs_filtered_again") - again;
  Check(tried >= 2 && Declined(*service, "compaction-filter") > 0, service->Stats());
  again += tried;
  write();
  filter.way = Wild::Way::kReads;
  Compact(db.get());
  Check(Content(db.get()).size() == 10, "a key is lost");
  write();
  filter.way = Wild::Way::kBeyond;
  Compact(db.get());
  Check(Content(db.get()).empty(), "a key is left");
  Check(Count(service->Stats(), "jobs_filtered_again") == again, service->Stats());
  // RocksDB announces no compaction of files.
  write();
  const uint64_t declined = Declined(*service, "compaction-filter");
  Check(CompactFiles(db.get(), db->DefaultColumnFamily(), 1, {}));
  Check(Declined(*service, "compaction-filter") == declined + 1, service->Stats());
  Check(service->LastError().find("announces none of CompactFiles") != std::string::npos, service->LastError());
}

#if ROCKMILL_ROCKSDB_SINCE(8, 5)
// RocksDB leaves some outputs of universal compactions uncompressed, by sizes that a service is not told.
void PickedCompressions(const std::string& folder) {
  std::string tables[2];
  std::shared_ptr<rockmill::Service> service;
  for (const bool is_with : {false, true}) {
    auto options = Quiet();
    options.disable_auto_compactions = false;
    options.compaction_style = rocksdb::kCompactionStyleUniversal;
    options.compaction_options_universal.compression_size_percent = 50;
    options.level0_file_num_compaction_trigger = 3;
    for (const auto compression : rocksdb::GetSupportedCompressions()) {
      if (compression == rocksdb::kLZ4Compression || compression == rocksdb::kSnappyCompression) {
        options.compression = compression;
      }
    }
    if (is_with) service = Attached(&options, "6");
    auto db = Open(options, folder + (is_with ? "/picked" : "/picked without"));
    uint64_t key = 0;
    for (int file = 0; file < 14; ++file) {
      for (int entry = 0; entry < 300; ++entry) Check(db->Put({}, Key(key++ * 7919 % 100000), std::string(100, 'v')));
      Check(db->Flush({}));
      Check(db->WaitForCompact({}));
    }
    rocksdb::TablePropertiesCollection properties;
    Check(db->GetPropertiesOfAllTables(&properties));
    std::multiset<std::string> all;
    for (const auto& table : properties) {
      all.insert(std::to_string(table.second->num_entries) + " " + table.second->compression_name + "\n");
    }
    for (const auto& one : all) tables[is_with] += one;
  }
  Check(tables[0] == tables[1], tables[0] + "with Rockmill:\n" + tables[1]);
  Check(Count(service->Stats(), "jobs_done") > 2 && Count(service->Stats(), "jobs_declined") == 0, service->Stats());
}
#endif

// RocksDB's collector, which also keeps a property.
class Signed : public rocksdb::CompactOnDeletionCollectorFactory {
 public:
  Signed() : CompactOnDeletionCollectorFactory(16, 12, 0) {}

  rocksdb::TablePropertiesCollector* CreateTablePropertiesCollector(Context) override { return new Collector(size_); }

  // Bytes of the property.
  std::atomic<size_t> size_{4};

 private:
  class Collector : public rocksdb::TablePropertiesCollector {
   public:
    explicit Collector(size_t size) : size_(size) {}
    const char* Name() const override { return "Signed"; }
    rocksdb::Status AddUserKey(const rocksdb::Slice&, const rocksdb::Slice&, rocksdb::EntryType, rocksdb::SequenceNumber,
                               uint64_t) override {
      return rocksdb::Status::OK();
    }
    rocksdb::Status Finish(rocksdb::UserCollectedProperties* properties) override {
      (*properties)["signature"] = std::string(size_, 's');
      return rocksdb::Status::OK();
    }
    rocksdb::UserCollectedProperties GetReadableProperties() const override { return {}; }

   private:
    const size_t size_;
  };
};

// A class of the program may have the name of RocksDB's, and be derived from it.
void CollectorsThatAreNotRocksDbs(const std::string& folder) {
  auto options = Quiet();
  const auto own = std::make_shared<Signed>();
  options.table_properties_collector_factories = {own, rocksdb::NewCompactOnDeletionCollectorFactory(16, 12)};
  const auto service = Attached(&options, "8");
  auto db = Open(options, folder + "/signed");
  const auto write = [&] {
    for (int file = 0; file < 2; ++file) {
      Check(db->Put({}, "key", "value"));
      Check(db->Flush({}));
    }
    Compact(db.get());
  };
  write();
  Check(Count(service->Stats(), "jobs_done") == 1, service->Stats());
  rocksdb::TablePropertiesCollection tables;
  Check(db->GetPropertiesOfAllTables(&tables));
  for (const auto& table : tables) {
    const auto& properties = table.second->user_collected_properties;
    Check(properties.count("signature") == 1 && properties.at("signature") == "ssss", "the property is lost");
  }
  own->size_ = 2 << 20;
  write();
  Check(Declined(*service, "memory-budget") > 0 && Count(service->Stats(), "jobs_failed") == 0, service->Stats());
}

// Keeps the smallest value, under the name of RocksDB's operator for the largest.
class Smallest : public rocksdb::AssociativeMergeOperator {
 public:
  const char* Name() const override { return "MaxOperator"; }

  bool Merge(const rocksdb::Slice&, const rocksdb::Slice* existing, const rocksdb::Slice& value, std::string* made,
             rocksdb::Logger*) const override {
    *made = existing != nullptr && existing->compare(value) < 0 ? existing->ToString() : value.ToString();
    return true;
  }
};

// RocksDB's registry knows the program's class under the name, because it has come first.
void OperatorsWithRocksDbsName(const std::string& folder) {
  rocksdb::ObjectLibrary::Default()->AddFactory<rocksdb::MergeOperator>(
      rocksdb::ObjectLibrary::PatternEntry("MaxOperator").AnotherName("max"),
      [](const std::string&, std::unique_ptr<rocksdb::MergeOperator>* guard, std::string*) {
        guard->reset(new Smallest());
        return guard->get();
      });
  auto options = Quiet();
  options.merge_operator = std::make_shared<Smallest>();
  const auto service = Attached(&options, "1");
  auto db = Open(options, folder + "/smallest");
  Merges(db.get(), db->DefaultColumnFamily());
  Check(Count(service->Stats(), "jobs_done") == 1, service->Stats());
  std::string value;
  Check(db->Get({}, "key", &value));
  Check(value == "v0", value);
}

// Runs it in a process of its own: what is registered stays so.
void Apart(const std::function<void()>& run) {
  const pid_t child = fork();
  Check(child >= 0, "no process");
  if (child == 0) {
    run();
    std::cout.flush();
    _exit(0);
  }
  int ended = 0;
  Check(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0, "a child has failed");
}

// Files of a database may be elsewhere.
void FilesElsewhere(const std::string& folder) {
  for (const bool is_elsewhere : {false, true}) {
    for (const bool is_of_family : {false, true}) {
      auto options = Quiet();
      const std::string path = folder + "/paths" + std::to_string(is_elsewhere) + std::to_string(is_of_family);
      const std::vector<rocksdb::DbPath> paths = {{path + (is_elsewhere ? "/files" : ""), uint64_t{1} << 40}};
      (is_of_family ? options.cf_paths : options.db_paths) = paths;
      const auto service = Attached(&options, "9");
      auto db = Open(options, path);
      for (int file = 0; file < 2; ++file) {
        Check(db->Put({}, "key", "value"));
        Check(db->Flush({}));
      }
      const auto done = Count(service->Stats(), "jobs_done"), declined = Declined(*service, "db-paths");
      Compact(db.get());
      Check(Count(service->Stats(), "jobs_done") == done + !is_elsewhere, service->Stats());
      Check(Declined(*service, "db-paths") == declined + is_elsewhere, service->Stats() + service->LastError());
    }
  }
}

// Jobs with a comparator of the program are done if it has the order of bytes on their keys, or if that is stated.
void ComparatorsOfTheProgram(const std::string& folder) {
  static const Numeric numeric;
  const auto compact = [&](const std::string& name, const std::map<std::string, std::string>& settings,
                           const std::vector<std::vector<std::string>>& files) {
    auto options = Quiet();
    options.comparator = &numeric;
    rocksdb::Status status;
    const auto service = rockmill::Attach(&options, settings, &status);
    Check(status);
    auto db = Open(options, folder + "/" + name);
    for (const auto& keys : files) {
      for (const auto& key : keys) Check(db->Put({}, key, "value of " + key));
      Check(db->Flush({}));
    }
    Compact(db.get());
    std::string value;
    for (const auto& keys : files) {
      for (const auto& key : keys) Check(db->Get({}, key, &value).ok() && value == "value of " + key, key);
    }
    rocksdb::TablePropertiesCollection tables;
    Check(db->GetPropertiesOfAllTables(&tables));
    for (const auto& one : tables) Check(one.second->comparator_name == "Numeric", one.second->comparator_name);
    const bool is_done = Count(service->Stats(), "jobs_done") > 0, is_declined = Declined(*service, "comparator") > 0;
    Check(is_done != is_declined, service->Stats());
    return is_done;
  };
  std::map<std::string, std::string> settings = {{"min_job_bytes", "0"}, {"threads", "11"}};
  const std::vector<std::vector<std::string>> equal = {{"1000", "3000"}, {"2000", "3000"}};
  Check(compact("not-stated", settings, equal), "numbers of equal length are in the order of bytes");
  Check(!compact("contradicted", settings, {{"5", "10"}, {"7"}}), "the bounds of a file are not in the order of bytes");
  Check(!compact("in-the-middle", settings, {{"1", "7", "90"}, {"10"}}), "two files have another order together");
  settings["comparator"] = "Numeric=bytewise";
  Check(compact("stated", settings, equal), "numbers of equal length are in the order of bytes");
  Check(!compact("wrong", settings, {{"5", "10"}, {"7"}}), "the keys show that the statement is wrong");
  settings["comparator"] = "Numeric=reverse";
  Check(!compact("reverse", settings, equal), "the keys show that the statement is wrong");

  // A name of RocksDB's own comparators is no statement.
  class Posing : public Ordered {
   public:
    explicit Posing(const rocksdb::Comparator* own) : Ordered(false), own_(own) {}
    const char* Name() const override { return own_->Name(); }

   private:
    const rocksdb::Comparator* const own_;
  };
  for (const auto* own : {rocksdb::BytewiseComparator(), rocksdb::ReverseBytewiseComparator()}) {
    const Posing posing(own);
    auto options = Quiet();
    options.comparator = &posing;
    rocksdb::Status status;
    rockmill::Attach(&options, {{"threads", "3"}}, &status);
    Check(status.IsNotSupported() && options.compaction_service == nullptr, status.ToString());
  }
}

// Throws at its first call of each compaction. RocksDB, which is not exception-safe, makes none before the service is asked.
class Throwing : public Ordered {
 public:
  Throwing() : Ordered(false) {}
  int Compare(const rocksdb::Slice& a, const rocksdb::Slice& b) const override {
    if (throws.exchange(false)) throw std::runtime_error("a comparator throws");
    return Ordered::Compare(a, b);
  }

  mutable std::atomic<bool> throws{false};
};

void ComparatorsThatThrow(const std::string& folder) {
  static const Throwing throwing;
  class Arming : public rocksdb::EventListener {
    void OnCompactionBegin(rocksdb::DB*, const rocksdb::CompactionJobInfo&) override { throwing.throws = true; }
  };
  auto options = Quiet();
  options.comparator = &throwing;
  options.listeners.push_back(std::make_shared<Arming>());
  const auto service = Attached(&options, "12");
  auto db = Open(options, folder + "/throws");
  for (const char* key : {"a", "b"}) {
    Check(db->Put({}, key, key));
    Check(db->Put({}, "c", key));
    Check(db->Flush({}));
  }
  Compact(db.get());
  Check(Declined(*service, "plugin-failed") > 0 && Count(service->Stats(), "jobs_done") == 0, service->Stats());
  std::string value;
  Check(db->Get({}, "c", &value).ok() && value == "b" && !throwing.throws, value);
}

// Attached objects have to be those of the database.
void OthersAreDeclined(const std::string& folder) {
  auto options = Quiet();
  options.merge_operator = std::make_shared<Joined>(std::make_shared<Calls>());
  const auto service = Attached(&options, "3");
  options.merge_operator = std::make_shared<Failing>();
  auto db = Open(options, folder + "/other");
  Merges(db.get(), db->DefaultColumnFamily());
  Check(Declined(*service, "plugin-mismatch") == 1 && Count(service->Stats(), "jobs_done") == 0, service->Stats());
  Check(service->LastError().find("merge_operator is Failing in OPTIONS, and Joined was attached") != std::string::npos,
        service->LastError());
}

// Objects belong to the column family that there was, and not to one that is made with its name.
void FamiliesThatAreMadeAnew(const std::string& folder) {
  auto options = Quiet();
  const auto joined = std::make_shared<Joined>(std::make_shared<Calls>());
  options.merge_operator = joined;
  const auto path = folder + "/anew";
  {
    auto db = Open(options, path);
    rocksdb::ColumnFamilyHandle* family = nullptr;
    Check(db->CreateColumnFamily(options, "counts", &family));
    Check(db->DestroyColumnFamilyHandle(family));
  }
  std::vector<rocksdb::ColumnFamilyDescriptor> families = {{rocksdb::kDefaultColumnFamilyName, options},
                                                           {"counts", options}};
  rocksdb::DBOptions db_options = options;
  rocksdb::Status status;
  const auto service = rockmill::Attach(&db_options, &families, {{"min_job_bytes", "0"}, {"threads", "4"}}, &status);
  Check(status);
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const auto open = [&] {
    handles.clear();
    return Open(db_options, path, families, &handles);
  };
  auto db = open();
  Merges(db.get(), handles[0]);
  Merges(db.get(), handles[1]);
  Check(Count(service->Stats(), "jobs_done") == 2, service->Stats());
  Check(db->DropColumnFamily(handles[1]));
  Check(db->DestroyColumnFamilyHandle(handles[1]));
  Check(db->CreateColumnFamily(options, "counts", &handles[1]));
  Merges(db.get(), handles[1]);
  Check(Declined(*service, "merge-operands") == 1 && Count(service->Stats(), "jobs_done") == 2, service->Stats());
  Check(service->LastError().find("call AddColumnFamily") != std::string::npos, service->LastError());
  service->AddColumnFamily(db.get(), handles[1], options);
  Merges(db.get(), handles[1]);
  const auto done = Count(service->Stats(), "jobs_done");
  Check(done > 2, service->Stats());
  Merges(db.get(), handles[0]);
  Check(Count(service->Stats(), "jobs_done") > done && Count(service->Stats(), "jobs_declined") == 1, service->Stats());
  for (auto* handle : handles) Check(db->DestroyColumnFamilyHandle(handle));
  db.reset();
  // The same in a second session of the same options, before anything was flushed.
  db = open();
  Check(db->DropColumnFamily(handles[1]));
  Check(db->DestroyColumnFamilyHandle(handles[1]));
  Check(db->CreateColumnFamily(options, "counts", &handles[1]));
  const auto before = Count(service->Stats(), "jobs_done");
  Merges(db.get(), handles[1]);
  Check(Declined(*service, "merge-operands") == 2 && Count(service->Stats(), "jobs_done") == before, service->Stats());
  service->AddColumnFamily(db.get(), handles[1], options);
  Merges(db.get(), handles[1]);
  Check(Count(service->Stats(), "jobs_done") > before, service->Stats());
  for (auto* handle : handles) Check(db->DestroyColumnFamilyHandle(handle));
}

// Databases may share attached options, one after another or at a time.
void SharedOptions(const std::string& folder) {
  auto options = Quiet();
  options.merge_operator = std::make_shared<Joined>(std::make_shared<Calls>());
  const auto service = rockmill::Attach(&options, {{"min_job_bytes", "0"}, {"threads", "7"}}, nullptr, rockmill::Families::kAll);
  Check(service != nullptr, "the options are refused");
  uint64_t called = 0;
  const auto merges = [&](rocksdb::DB* db, rocksdb::ColumnFamilyHandle* family) {
    Merges(db, family);
    const auto stats = service->Stats();
    Check(Count(stats, "jobs_with_plugins") > called, stats);
    called = Count(stats, "jobs_with_plugins");
  };
  auto first = Open(options, folder + "/first");
  auto second = Open(options, folder + "/second");
  merges(first.get(), first->DefaultColumnFamily());
  merges(second.get(), second->DefaultColumnFamily());
  // All column families have these options.
  rocksdb::ColumnFamilyHandle* family = nullptr;
  Check(second->CreateColumnFamily(options, "other", &family));
  merges(second.get(), family);
  first.reset();
  // RocksDB does not say which database closes, so the jobs of both are left to it for a quarter of a second.
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  merges(second.get(), second->DefaultColumnFamily());
  Check(second->DestroyColumnFamilyHandle(family));
  first = Open(options, folder + "/first");
  merges(first.get(), first->DefaultColumnFamily());
  Check(Count(service->Stats(), "jobs_failed") == 0, service->Stats());
}

// A close does not wait for a job that would take half a minute.
void ClosesUnderAJob(const std::string& folder) {
  constexpr int kFiles = 4, kValues = 64;
  const std::string value(64 << 10, 'v');
  auto options = Quiet();
  options.disable_auto_compactions = false;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 64 << 20;
  options.level0_file_num_compaction_trigger = kFiles;
  {
    rocksdb::Status status;
    const auto service = rockmill::Attach(
        &options, {{"min_job_bytes", "0"}, {"threads", "12"}, {"io_bytes_per_second", "1048576"}}, &status);
    Check(status);
    auto db = Open(options, folder + "/closing");
    for (int file = 0; file < kFiles; ++file) {
      for (uint64_t key = 0; key < kValues; ++key) Check(db->Put({}, Key(key), value));
      Check(db->Flush({}));
    }
    while (Count(service->Stats(), "jobs_running") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Check(rockmill::DatabaseCloses(db.get()));
    db.reset();
    Check(Count(service->Stats(), "jobs_done") == 0, "the close has waited: " + service->Stats());
  }
  options.compaction_service = nullptr;
  Check(Content(Open(options, folder + "/closing").get()).size() == kValues, "a key is lost");
}

void RefusesOptions() {
  rocksdb::Status status;
  rocksdb::Options options;
  options.db_paths = {{"/a", 1}, {"/b", 1}};
  Check(rockmill::Attach(&options, {{"threads", "1"}}, &status) == nullptr && status.IsNotSupported(), status.ToString());
  Check(options.compaction_service == nullptr && options.listeners.empty(), "the options were changed");
  options.db_paths.clear();
  Check(rockmill::Attach(&options, {{"thread", "1"}}, &status) == nullptr && !status.ok(), "an unknown setting");
  rocksdb::TransactionDBOptions transactions;
  Check(rockmill::Attach(&options, transactions, {{"threads", "1"}}, &status) != nullptr, status.ToString());
  const auto first = options.compaction_service;
  Check(rockmill::Attach(&options, {{"threads", "1"}}, &status) != nullptr, status.ToString());
  Check(options.compaction_service != first && options.listeners.size() == 1, "an earlier listener is left");
  class Renamed : public rocksdb::SstPartitionerFixedPrefixFactory {
   public:
    Renamed() : SstPartitionerFixedPrefixFactory(2) {}
  };
  options.sst_partitioner_factory = std::make_shared<Renamed>();
  Check(rockmill::Attach(&options, {{"threads", "1"}}, &status) == nullptr && status.IsNotSupported(), status.ToString());
  options.sst_partitioner_factory = rocksdb::NewSstPartitionerFixedPrefixFactory(2);
  class Shorter : public Halves {
   public:
    const char* Name() const override { return "rocksdb.FixedPrefix.8"; }
  };
  options.prefix_extractor = std::make_shared<Shorter>();
  Check(rockmill::Attach(&options, {{"threads", "1"}}, &status) == nullptr && status.IsNotSupported(), status.ToString());
  // The C API wraps RocksDB's own.
  class Wrapped : public Halves {
   public:
    const char* Name() const override { return "rocksdb.FixedPrefix.8"; }
    bool InDomain(const rocksdb::Slice& key) const override { return key.size() >= 8; }
    rocksdb::Slice Transform(const rocksdb::Slice& key) const override { return {key.data(), 8}; }
  };
  options.prefix_extractor = std::make_shared<Wrapped>();
  Check(rockmill::Attach(&options, {{"threads", "1"}}, &status) != nullptr, status.ToString());
  options.prefix_extractor.reset(rocksdb::NewCappedPrefixTransform(3));
  Check(rockmill::Attach(&options, {{"threads", "1"}}, &status) != nullptr, status.ToString());
  transactions.write_policy = rocksdb::WRITE_PREPARED;
  Check(rockmill::Attach(&options, transactions, {{"threads", "1"}}, &status) == nullptr && status.IsNotSupported(),
        status.ToString());
}

}  // namespace

int main(int count, char** arguments) {
  Check(count == 2, "name a folder");
  const std::string folder = arguments[1];
  Apart([&] { OperatorsWithRocksDbsName(folder); });
  RefusesOptions();
  CollectorsThatAreNotRocksDbs(folder);
  FilesElsewhere(folder);
  PrefixesOfTheProgram(folder);
  FailuresAreDeclines(folder);
  WildFilters(folder);
#if ROCKMILL_ROCKSDB_SINCE(8, 5)
  PickedCompressions(folder);
#endif
  ComparatorsOfTheProgram(folder);
  ComparatorsThatThrow(folder);
  OthersAreDeclined(folder);
  FamiliesThatAreMadeAnew(folder);
  SharedOptions(folder);
  ClosesUnderAJob(folder);
  RandomHistories(folder);
  std::cout << "done\n";
}
