// The options and the mix of operations of twelve programs.
#pragma once

#include "load.hpp"

#include <rocksdb/compaction_filter.h>
#include <rocksdb/comparator.h>
#include <rocksdb/convenience.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/utilities/table_properties_collectors.h>

#include <algorithm>
#include <cstring>

namespace profiles {

// Removes values by their first byte, as if it were a time.
class Expired final : public rocksdb::CompactionFilter {
 public:
  explicit Expired(const char* name) : name_(name) {}
  const char* Name() const override { return name_; }

  Decision FilterV2(int, const rocksdb::Slice&, ValueType kind, const rocksdb::Slice& value, std::string*,
                    std::string*) const override {
    const bool has_ended = kind == ValueType::kValue && !value.empty() && static_cast<uint8_t>(value[0]) < 12;
    return has_ended ? Decision::kRemove : Decision::kKeep;
  }

 private:
  const char* const name_;
};

class ExpiredFactory final : public rocksdb::CompactionFilterFactory {
 public:
  explicit ExpiredFactory(const char* name) : name_(name) {}
  const char* Name() const override { return name_; }

  std::unique_ptr<rocksdb::CompactionFilter> CreateCompactionFilter(
      const rocksdb::CompactionFilter::Context&) override {
    return std::make_unique<Expired>(name_);
  }

 private:
  const char* const name_;
};

// Adds the first bytes of values.
class Counter final : public rocksdb::AssociativeMergeOperator {
 public:
  explicit Counter(const char* name) : name_(name) {}
  const char* Name() const override { return name_; }

  bool Merge(const rocksdb::Slice&, const rocksdb::Slice* existing, const rocksdb::Slice& value, std::string* made,
             rocksdb::Logger*) const override {
    const auto number = [](const rocksdb::Slice& bytes) {
      uint64_t number = 0;
      std::memcpy(&number, bytes.data(), std::min(sizeof number, bytes.size()));
      return number;
    };
    const uint64_t sum = (existing != nullptr ? number(*existing) : 0) + number(value);
    made->assign(reinterpret_cast<const char*>(&sum), sizeof sum);
    return true;
  }

 private:
  const char* const name_;
};

// Keeps the largest sequence number of a file, or asks for another compaction of files with many deletes.
class Summary final : public rocksdb::TablePropertiesCollector {
 public:
  const char* Name() const override { return "Summary"; }

  rocksdb::Status AddUserKey(const rocksdb::Slice&, const rocksdb::Slice&, rocksdb::EntryType kind,
                             rocksdb::SequenceNumber sequence, uint64_t) override {
    entries_ += 1;
    deletes_ += kind == rocksdb::kEntryDelete;
    largest_ = std::max(largest_, sequence);
    return rocksdb::Status::OK();
  }

  rocksdb::Status Finish(rocksdb::UserCollectedProperties* properties) override {
    (*properties)["largest"] = std::to_string(largest_);
    return rocksdb::Status::OK();
  }

  rocksdb::UserCollectedProperties GetReadableProperties() const override { return {}; }
  bool NeedCompact() const override { return deletes_ * 2 > entries_; }

 private:
  uint64_t entries_ = 0, deletes_ = 0, largest_ = 0;
};

class SummaryFactory final : public rocksdb::TablePropertiesCollectorFactory {
 public:
  explicit SummaryFactory(const char* name) : name_(name) {}
  const char* Name() const override { return name_; }
  rocksdb::TablePropertiesCollector* CreateTablePropertiesCollector(Context) override { return new Summary(); }

 private:
  const char* const name_;
};

// All but the last 8 bytes.
class WithoutVersion final : public rocksdb::SliceTransform {
 public:
  explicit WithoutVersion(const char* name) : name_(name) {}
  const char* Name() const override { return name_; }
  bool InDomain(const rocksdb::Slice& key) const override { return key.size() > 8; }
  rocksdb::Slice Transform(const rocksdb::Slice& key) const override { return {key.data(), key.size() - 8}; }

 private:
  const char* const name_;
};

// The order of bytes, or the opposite one, under a name of its own.
class Named final : public rocksdb::Comparator {
 public:
  Named(const char* name, bool is_reverse) : name_(name), is_reverse_(is_reverse) {}
  const char* Name() const override { return name_; }
  int Compare(const rocksdb::Slice& a, const rocksdb::Slice& b) const override {
    return is_reverse_ ? b.compare(a) : a.compare(b);
  }
  void FindShortestSeparator(std::string*, const rocksdb::Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}

 private:
  const char* const name_;
  const bool is_reverse_;
};

// Orders keys by their last 8 bytes before the others.
class ByLastBytes final : public rocksdb::Comparator {
 public:
  explicit ByLastBytes(const char* name) : name_(name) {}
  const char* Name() const override { return name_; }
  int Compare(const rocksdb::Slice& a, const rocksdb::Slice& b) const override {
    const int order = Last(a).compare(Last(b));
    return order != 0 ? order : a.compare(b);
  }
  void FindShortestSeparator(std::string*, const rocksdb::Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}

 private:
  static rocksdb::Slice Last(rocksdb::Slice key) {
    if (key.size() > 8) key.remove_prefix(key.size() - 8);
    return key;
  }

  const char* const name_;
};

inline rocksdb::ColumnFamilyOptions Table(const rocksdb::BlockBasedTableOptions& table,
                                   rocksdb::CompressionType compression = rocksdb::kLZ4Compression) {
  rocksdb::ColumnFamilyOptions options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.compression = compression;
  return options;
}

inline rocksdb::BlockBasedTableOptions Bloom(double bits = 10) {
  rocksdb::BlockBasedTableOptions table;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(bits));
  return table;
}

inline rocksdb::BlockBasedTableOptions Partitioned(rocksdb::BlockBasedTableOptions table) {
  table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  table.partition_filters = true;
  return table;
}

inline rocksdb::BlockBasedTableOptions Hashed(rocksdb::BlockBasedTableOptions table) {
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  return table;
}

template <class Options>
Options With(Options options, const std::function<void(Options*)>& change) {
  change(&options);
  return options;
}

using Cf = rocksdb::ColumnFamilyOptions;

inline Profile Kvrocks() {
  const auto table = Hashed(Partitioned(Bloom()));
  const auto family = [&](const char* filter) {
    return With<Cf>(Table(table), [&](Cf* options) {
      options->compaction_filter_factory = std::make_shared<ExpiredFactory>(filter);
      options->table_properties_collector_factories = {
          std::make_shared<SummaryFactory>("CompactOnExpiredTableCollectorFactory")};
    });
  };
  const Mix mix{90, 10, 0, 0, 1, 0};
  return {"kvrocks",
          "Kvrocks, src/storage/storage.cc",
          {},
          {{"default", family("SubKeyFilterFactory"), mix, 3}, {"metadata", family("MetadataFilterFactory"), mix, 1}}};
}

inline Profile MyRocks() {
  static const Named forward("RocksDB_SE_v3.10", false), backward("rev:RocksDB_SE_v3.10", true);
  const auto family = [](const rocksdb::Comparator* order) {
    return With<Cf>(Table(Bloom()), [&](Cf* options) {
      options->comparator = order;
      options->compaction_filter_factory = std::make_shared<ExpiredFactory>("Rdb_compact_filter_factory");
      options->table_properties_collector_factories = {std::make_shared<SummaryFactory>("Rdb_tbl_prop_coll_factory")};
    });
  };
  Profile profile{"myrocks",
                  "MariaDB, storage/rocksdb/rdb_cf_options.cc",
                  {},
                  {{"default", family(&forward), {80, 5, 0, 15}, 4}, {"rev:cf2", family(&backward), {90, 10}, 1}},
                  true};
  profile.db.two_write_queues = true;
  return profile;
}

inline Profile ArangoDb() {
  const auto edges = With<rocksdb::BlockBasedTableOptions>(Bloom(), [](auto* table) {
    table->index_type = rocksdb::BlockBasedTableOptions::kHashSearch;
  });
  static const ByLastBytes vpack("RocksDBVPackComparator");
  Profile profile{
      "arangodb",
      "ArangoDB, arangod/RocksDBEngine/RocksDBOptionsProvider.cpp",
      {},
      {{"default", Table(Bloom()), {90, 10, 0, 0, 1}, 1},
       {"Documents", Table(Bloom()), {90, 10, 0, 0, 1}, 3},
       {"EdgeIndex", With<Cf>(Table(edges),
                              [](Cf* options) {
                                options->prefix_extractor = std::make_shared<WithoutVersion>("RocksDBPrefixExtractor");
                              }),
        {90, 10}, 1},
       {"VPackIndex", With<Cf>(Table(Bloom()), [](Cf* options) { options->comparator = &vpack; }), {90, 10}, 1}},
      true};
  return profile;
}

inline Profile Nebula() {
  return {"nebula",
          "NebulaGraph, src/kvstore/RocksEngineConfig.cpp",
          {},
          {{"default", With<Cf>(Table(Bloom()),
                                [](Cf* options) {
                                  options->compaction_filter_factory =
                                      std::make_shared<ExpiredFactory>("NebulaCompactionFilterFactory");
                                  options->prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(12));
                                }),
            {90, 10, 0, 0, 2, 2}, 1}}};
}

inline Profile FoundationDb() {
  return {"foundationdb",
          "FoundationDB, fdbserver/kvstore/KeyValueStoreRocksDB.cpp",
          {},
          {{"default", With<Cf>(Table(Bloom()),
                                [](Cf* options) {
                                  options->table_properties_collector_factories = {
                                      rocksdb::NewCompactOnDeletionCollectorFactory(128, 1)};
                                }),
            {75, 25, 0, 0, 10}, 1}}};
}

inline Profile Aptos() {
  const auto family = [](bool has_prefixes) {
    return With<Cf>(Table(Bloom()), [&](Cf* options) {
      options->table_properties_collector_factories = {rocksdb::NewCompactOnDeletionCollectorFactory(0, 0, 0.4)};
      if (has_prefixes) options->prefix_extractor = std::make_shared<WithoutVersion>("state_value_extractor");
    });
  };
  const Mix versions{90, 10, 0, 0, 0, 0, 1000, 20000, false, 8, 100};
  return {"aptos",
          "Aptos, storage/aptosdb/src/db_options.rs",
          {},
          {{"default", family(false), {95, 5}, 1}, {"state_value", family(true), versions, 2}}};
}

inline Profile Agave() {
  const auto slots = [](bool has_filter) {
    return With<Cf>(Table({}, rocksdb::kNoCompression), [&](Cf* options) {
      if (has_filter) {
        options->compaction_filter_factory = std::make_shared<ExpiredFactory>("purged_slot_filter_factory");
      }
    });
  };
  const Mix shreds{100, 0, 0, 0, 3, 0, 1, 1, true, 0, 1000};
  return {"agave",
          "Agave, ledger/src/blockstore_db.rs",
          {},
          {{"default", slots(false), {}, 2}, {"data_shred", slots(false), shreds, 4}, {"transaction_status", slots(true), {}, 4}}};
}

inline Profile Stalwart() {
  const auto queue = With<Cf>(Table(Bloom()), [](Cf* options) {
    options->table_properties_collector_factories = {rocksdb::NewCompactOnDeletionCollectorFactory(128, 64)};
  });
  const auto counters = With<Cf>(Table({}), [](Cf* options) {
    options->merge_operator = std::make_shared<Counter>("merge");
  });
  return {"stalwart",
          "Stalwart, crates/store/src/backend/rocksdb/main.rs",
          {},
          {{"default", Table(Bloom()), {90, 10}, 3},
           {"queue", queue, {50, 50, 0, 0, 0, 0, 1, 1, true}, 1},
           {"counters", counters, {10, 0, 90}, 1}}};
}

inline Profile Restate() {
  const auto store = With<Cf>(Table(Bloom()), [](Cf* options) {
    options->merge_operator = std::make_shared<Counter>("PartitionMerge");
    options->table_properties_collector_factories = {
        rocksdb::NewCompactOnDeletionCollectorFactory(1000, 200),
        std::make_shared<SummaryFactory>("AppliedLsnCollectorFactory")};
  });
  return {"restate",
          "Restate, crates/partition-store/src/partition_db.rs",
          {},
          {{"default", store, {60, 20, 20}, 2}, {"logs", Table({}), {100, 0, 0, 0, 3, 0, 1, 1, true, 0, 500}, 2}}};
}

inline Profile Tuwunel() {
  const auto family = [](bool is_universal) {
    const auto table = With<rocksdb::BlockBasedTableOptions>(Hashed(Partitioned(Bloom())), [](auto* table) {
      table->metadata_block_size = 3500;
      table->block_size_deviation = 10;
    });
    return With<Cf>(Table(table, rocksdb::kZSTD), [&](Cf* options) {
      if (is_universal) options->compaction_style = rocksdb::kCompactionStyleUniversal;
    });
  };
  return {"tuwunel",
          "tuwunel, src/database/engine/cf_opts.rs",
          {},
          {{"default", family(false), {95, 5}, 2}, {"pduid_pdu", family(true), {100, 0, 0, 0, 0, 0, 1, 1, true}, 1}}};
}

inline Profile Oxigraph() {
  return {"oxigraph",
          "Oxigraph, lib/oxigraph/src/storage/rocksdb_wrapper.rs",
          {},
          {{"default", Table(Bloom(), rocksdb::kLZ4Compression), {95, 5, 0, 0, 1, 1, 1000, 100000, false, 0, 1}, 3},
           {"id2str", With<Cf>(Table(Hashed(Bloom())), [](Cf*) {}), {}, 1}}};
}

inline Profile Flink() {
  std::shared_ptr<rocksdb::MergeOperator> append;
  Check(rocksdb::MergeOperator::CreateFromString({}, "stringappendtest", &append));
  const auto family = [&](bool is_list) {
    return With<Cf>(Table(Bloom()), [&](Cf* options) {
      options->merge_operator = append;
      if (!is_list) {
        options->compaction_filter_factory = std::make_shared<ExpiredFactory>("FlinkCompactionFilterFactory");
      }
    });
  };
  return {"flink",
          "Flink, flink-state-backends/flink-statebackend-rocksdb",
          {},
          {{"default", Table(Bloom()), {}, 1},
           {"list-state", family(true), {5, 5, 90, 0, 0, 0, 100, 1000}, 2},
           {"ttl-state", family(false), {90, 10}, 1}}};
}

// All of them.
constexpr Profile (*kAll[])() = {Kvrocks, MyRocks, ArangoDb, Nebula,  FoundationDb, Aptos,
                                 Agave,   Stalwart, Restate, Tuwunel, Oxigraph,     Flink};

}  // namespace profiles
