// Writes to a database as a profile says, with Rockmill attached, and sums up the compactions that RocksDB announces.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/transaction_db.h>
#include <rockmill/rocksdb.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace profiles {

inline void Check(bool holds, const std::string& what) {
  if (holds) return;
  std::cerr << what << std::endl;
  std::_Exit(1);  // It may be a thread of RocksDB, which an exit would wait for.
}

inline void Check(const rocksdb::Status& status) { Check(status.ok(), status.ToString()); }

// What is written to a column family. Operations are drawn by their weights.
struct Mix {
  int puts = 100, deletes = 0, merges = 0, single_deletes = 0;
  // Of 100,000 operations.
  int range_deletes = 0, ingestions = 0;
  // Keys are a group and a number in it, each with 8 bytes. A range tombstone covers a group.
  uint64_t groups = 1000, keys = 100000;
  // Keys ascend, and the oldest ones are deleted, as in a log.
  bool is_log = false;
  // Bytes behind group and number.
  size_t suffix_bytes = 0;
  size_t value_bytes = 200;
};

struct Family {
  std::string name;
  rocksdb::ColumnFamilyOptions options;
  Mix mix;
  // Its share of all writes.
  int weight = 1;
};

struct Profile {
  std::string name;
  // The file of the program that it follows.
  std::string follows;
  rocksdb::DBOptions db;
  std::vector<Family> families;
  bool has_transactions = false;
};

// RocksDB's own account of compactions.
class Account final : public rocksdb::EventListener {
 public:
  void OnCompactionCompleted(rocksdb::DB*, const rocksdb::CompactionJobInfo& info) override {
    if (!info.status.ok()) return;
    input_ += info.stats.total_input_bytes;
    if (info.stats.is_remote_compaction) done_ += info.stats.total_input_bytes;
  }

  std::atomic<uint64_t> input_{0}, done_{0};
};

// The result of a profile.
struct Outcome {
  std::string name, follows, stats;
  uint64_t input = 0, done = 0;

  uint64_t Percent() const { return input == 0 ? 0 : done * 100 / input; }

  // Declined jobs by reason, as in the statistics.
  std::string Declines() const {
    const std::string key = "\"jobs_declined_by_reason\":{";
    const auto at = stats.find(key);
    if (at == std::string::npos) return "";
    std::string reasons = stats.substr(at + key.size(), stats.find('}', at) - at - key.size());
    reasons.erase(std::remove(reasons.begin(), reasons.end(), '"'), reasons.end());
    for (auto comma = reasons.find(','); comma != std::string::npos; comma = reasons.find(',', comma + 2)) {
      reasons.replace(comma, 1, ", ");
    }
    return reasons;
  }
};

class Load {
 public:
  using Settings = std::map<std::string, std::string>;

  // `bytes` are written. Sizes of the tree are for 2 GiB, and smaller for fewer. Without settings, RocksDB runs alone.
  //
  // With `acknowledged`, calls survive a crash. Each is atomic and leaves its number in the database. A process that goes on
  // with the database draws all calls again, and omits those that the database has. The number of the last acknowledged call
  // goes to `acknowledged`.
  Load(Profile profile, std::string folder, uint64_t bytes, std::optional<Settings> settings,
       std::atomic<uint64_t>* acknowledged = nullptr)
      : profile_(std::move(profile)),
        folder_(std::move(folder)),
        bytes_(bytes),
        settings_(std::move(settings)),
        acknowledged_(acknowledged) {}

  Outcome Run() {
    Open();
    for (uint64_t written = 0; written < bytes_;) written += WriteSome();
    Check(db_->FlushWAL(false));
    for (auto* handle : handles_) Check(db_->Flush({}, handle));
    rocksdb::WaitForCompactOptions wait;
    Check(db_->WaitForCompact(wait));
    Check(db_->VerifyChecksum());
    Outcome outcome{profile_.name, profile_.follows, service_->Stats(), account_->input_, account_->done_};
    Close();
    std::filesystem::remove_all(folder_);
    return outcome;
  }

  // Writes until it has made that many calls.
  void Reach(uint64_t calls) {
    limit_ = calls;
    while (calls_ < calls) WriteSome();
  }

  // The number of calls that the database has.
  uint64_t Calls() const { return known_calls_; }

  rockmill::Service& Service() const { return *service_; }

  // Compacts the column families, so that filters have seen every value, and returns their contents.
  std::vector<std::vector<std::pair<std::string, std::string>>> Compacted() {
    std::vector<std::vector<std::pair<std::string, std::string>>> all;
    Check(db_->VerifyChecksum());
    for (auto* handle : handles_) {
      rocksdb::CompactRangeOptions options;
      options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
      Check(db_->CompactRange(options, handle, nullptr, nullptr));
      auto& content = all.emplace_back();
      std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}, handle));
      for (it->SeekToFirst(); it->Valid(); it->Next()) {
        content.emplace_back(it->key().ToString(), it->value().ToString());
      }
      Check(it->status());
    }
    return all;
  }

  void Close() {
    for (auto* handle : handles_) Check(db_->DestroyColumnFamilyHandle(handle));
    handles_.clear();
    db_.reset();
  }

  void Open() {
    auto& db = profile_.db;
    db.create_if_missing = db.create_missing_column_families = true;
    // A compaction counts as done if one of its subcompactions is.
    Check(db.max_subcompactions <= 1, "the share would be too high");
    db.max_background_jobs = std::max(db.max_background_jobs, 4);
    account_ = std::make_shared<Account>();
    db.listeners.push_back(account_);
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (auto& family : profile_.families) {
      Scale(&family.options);
      families.emplace_back(family.name, family.options);
    }
    rocksdb::Status status;
    rocksdb::TransactionDBOptions transactions;
    if (settings_) {
      service_ = profile_.has_transactions ? rockmill::Attach(&db, &families, transactions, *settings_, &status)
                                           : rockmill::Attach(&db, &families, *settings_, &status);
    }
    Check(status);
    if (profile_.has_transactions) {
      rocksdb::TransactionDB* opened = nullptr;
      Check(rocksdb::TransactionDB::Open(db, transactions, folder_, families, &handles_, &opened));
      db_.reset(opened);
    } else {
      Check(rocksdb::DB::Open(db, folder_, families, &handles_, &db_));
    }
    ends_.assign(profile_.families.size(), 0);
    begins_.assign(profile_.families.size(), 0);
    std::string number;
    if (acknowledged_ != nullptr && db_->Get({}, kCallKey, &number).ok()) known_calls_ = std::stoull(number);
  }

 private:
  static constexpr uint64_t kWholeSize = uint64_t{2} << 30;
  // Behind all keys that range tombstones cover.
  static constexpr const char* kCallKey = "last call";

  void Scale(rocksdb::ColumnFamilyOptions* options) const {
    const auto scaled = [this](uint64_t size) {
      const auto part = static_cast<double>(bytes_) / static_cast<double>(kWholeSize);
      return std::max<uint64_t>(static_cast<uint64_t>(static_cast<double>(size) * std::min(part, 1.0)), 64 << 10);
    };
    options->write_buffer_size = scaled(options->write_buffer_size);
    options->target_file_size_base = scaled(options->target_file_size_base);
    options->max_bytes_for_level_base = scaled(options->max_bytes_for_level_base);
  }

  static std::string Number(uint64_t number) {
    std::string bytes(8, '\0');
    for (int at = 7; at >= 0; --at, number >>= 8) bytes[static_cast<size_t>(at)] = static_cast<char>(number);
    return bytes;
  }

  std::string Value(size_t size) {
    std::string value(size, 'v');
    for (size_t at = 0; at < size / 2; ++at) value[at] = static_cast<char>(random_());
    return value;
  }

  uint64_t Draw(uint64_t below) { return random_() % below; }

  std::string Key(size_t family, const Mix& mix) {
    const std::string suffix(mix.suffix_bytes, static_cast<char>('a' + Draw(3)));
    if (mix.is_log) return Number(0) + Number(ends_[family]++) + suffix;
    return Number(Draw(mix.groups)) + Number(Draw(mix.keys)) + suffix;
  }

  // Writes a batch to one column family; returns its bytes.
  uint64_t WriteSome() {
    constexpr int kOperations = 100;
    int weights = 0;
    for (const auto& family : profile_.families) weights += family.weight;
    auto at = static_cast<int>(Draw(static_cast<uint64_t>(weights)));
    size_t number = 0;
    while (at >= profile_.families[number].weight) at -= profile_.families[number++].weight;
    const auto& mix = profile_.families[number].mix;
    auto* handle = handles_[number];
    if (Draw(100000) < static_cast<uint64_t>(mix.ingestions) * kOperations) return Ingest(handle, mix);
    rocksdb::WriteBatch batch;
    const int all = mix.puts + mix.deletes + mix.merges + mix.single_deletes;
    uint64_t ranges = 0;
    for (int operation = 0; operation < kOperations; ++operation) {
      if (Draw(100000) < static_cast<uint64_t>(mix.range_deletes)) ranges += 1;
      auto drawn = static_cast<int>(Draw(static_cast<uint64_t>(all)));
      if ((drawn -= mix.puts) < 0) {
        Check(batch.Put(handle, Key(number, mix), Value(mix.value_bytes)));
      } else if ((drawn -= mix.merges) < 0) {
        Check(batch.Merge(handle, Key(number, mix), Value(8)));
      } else if ((drawn -= mix.deletes) < 0) {
        Check(batch.Delete(handle, mix.is_log && begins_[number] < ends_[number]
                                       ? Number(0) + Number(begins_[number]++)
                                       : Key(number, mix)));
      } else {
        // The contract: one Put beneath. No filter may remove it: RocksDB writes a Delete in the place of what one removes.
        const std::string key = Number(uint64_t{1} << 40) + Number(singles_++);
        std::string value = Value(mix.value_bytes);
        value.front() = '\xff';
        Check(batch.Put(handle, key, value));
        deferred_.push_back(key);
        if (deferred_.size() > 5000) {
          Check(batch.SingleDelete(handle, deferred_.front()));
          deferred_.pop_front();
        }
      }
    }
    Call(db_.get(), &batch);
    for (; ranges > 0; --ranges) DeleteRange(number, handle, mix);
    return batch.GetDataSize();
  }

  void Call(rocksdb::DB* db, rocksdb::WriteBatch* batch) {
    rocksdb::WriteOptions options;
    options.disableWAL = !profile_.has_transactions && acknowledged_ == nullptr;
    calls_ += 1;
    if (acknowledged_ != nullptr) {
      if (calls_ <= known_calls_ || calls_ > limit_) return;
      // No filter removes a digit.
      Check(batch->Put(kCallKey, std::to_string(calls_)));
    }
    Check(db->Write(options, batch));
    if (acknowledged_ != nullptr) *acknowledged_ = known_calls_ = calls_;
  }

  void DeleteRange(size_t number, rocksdb::ColumnFamilyHandle* handle, const Mix& mix) {
    std::string begin, end;
    if (mix.is_log) {
      const uint64_t from = begins_[number], to = from + (ends_[number] - from) / 2;
      if (from == to) return;
      begin = Number(0) + Number(from), end = Number(0) + Number(to);
      begins_[number] = to;
    } else {
      const uint64_t group = Draw(mix.groups);
      begin = Number(group), end = Number(group + 1);
    }
    rocksdb::WriteBatch batch;
    Check(batch.DeleteRange(handle, begin, end));
    Call(db_->GetRootDB(), &batch);
  }

  uint64_t Ingest(rocksdb::ColumnFamilyHandle* handle, const Mix& mix) {
    Check(acknowledged_ == nullptr, "an ingestion leaves no number");
    constexpr uint64_t kEntries = 3000;
    rocksdb::ColumnFamilyDescriptor described;
    Check(handle->GetDescriptor(&described));
    const std::string path = folder_ + "/ingested";
    rocksdb::SstFileWriter writer({}, rocksdb::Options(db_->GetDBOptions(), described.options), handle);
    Check(writer.Open(path));
    const uint64_t group = Draw(mix.groups);
    uint64_t bytes = 0;
    for (uint64_t number = 0; number < kEntries; ++number) {
      const std::string key = Number(group) + Number(number * (mix.keys / kEntries + 1)) + std::string(mix.suffix_bytes, 'a');
      Check(writer.Put(key, Value(mix.value_bytes)));
      bytes += key.size() + mix.value_bytes;
    }
    Check(writer.Finish());
    rocksdb::IngestExternalFileOptions options;
    options.move_files = true;
    Check(db_->IngestExternalFile(handle, {path}, options));
    return bytes;
  }

  Profile profile_;
  const std::string folder_;
  const uint64_t bytes_;
  const std::optional<Settings> settings_;
  std::atomic<uint64_t>* const acknowledged_;
  // Calls that were drawn, that the database has, and that are made at most.
  uint64_t calls_ = 0, known_calls_ = 0, limit_ = UINT64_MAX;
  std::shared_ptr<Account> account_;
  std::shared_ptr<rockmill::Service> service_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  // Numbers of the first and the next entry of each log.
  std::vector<uint64_t> begins_, ends_;
  uint64_t singles_ = 0;
  std::deque<std::string> deferred_;
  std::mt19937_64 random_{42};
};

}  // namespace profiles
