// The objects of a C++ program that compactions call: merge operators, compaction filters, collectors of table
// properties, prefix extractors, comparators. rockmill/rocksdb.hpp includes this file.
#pragma once

#include <rockmill.h>
#include <rocksdb/compaction_filter.h>
#include <rocksdb/comparator.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/listener.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/options.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/sst_partitioner.h>
#include <rocksdb/table_properties.h>
#include <rocksdb/utilities/object_registry.h>
#include <rocksdb/utilities/table_properties_collectors.h>
#include <rocksdb/version.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#define ROCKMILL_ROCKSDB_SINCE(major, minor) \
  (ROCKSDB_MAJOR > (major) || (ROCKSDB_MAJOR == (major) && ROCKSDB_MINOR >= (minor)))

namespace rockmill {
namespace internal {

// RocksDB and Rockmill are not exception-safe: an exception becomes `otherwise`.
template <class Work, class Result>
Result WithoutExceptions(Work work, Result otherwise) noexcept {
#ifdef __cpp_exceptions
  try {
    return work();
  } catch (...) {
    return otherwise;
  }
#else
  (void)otherwise;
  return work();
#endif
}

class NoLogger final : public ROCKSDB_NAMESPACE::Logger {
 public:
  using ROCKSDB_NAMESPACE::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

inline ROCKSDB_NAMESPACE::Slice ToSlice(rm_bytes bytes) { return {bytes.data, bytes.size}; }

// RocksDB does not write larger values.
inline bool IsTooLarge(size_t size) { return size > UINT32_MAX; }

// Merges with FullMergeV3, which RocksDB has since 8.8, and calls FullMergeV2 for an operator without it.
template <class Operator, class Input = typename Operator::MergeOperationInputV3>
int FullMerge(const Operator& merges, const ROCKSDB_NAMESPACE::Slice& key, const ROCKSDB_NAMESPACE::Slice* base,
              const std::vector<ROCKSDB_NAMESPACE::Slice>& operands, ROCKSDB_NAMESPACE::Logger* logger,
              rm_take_bytes take, void* context, int) {
  typename Input::ExistingValue existing;
  if (base != nullptr) existing = *base;
  const Input input(key, std::move(existing), operands, logger);
  typename Operator::MergeOperationOutputV3 output;
  if (!merges.FullMergeV3(input, &output)) {
    return output.op_failure_scope == Operator::OpFailureScope::kMustMerge ? RM_MERGE_KEEP : RM_MERGE_FAILED;
  }
  ROCKSDB_NAMESPACE::Slice value;
  if (const auto* text = std::get_if<std::string>(&output.new_value)) {
    value = *text;
  } else if (const auto* existing_operand = std::get_if<ROCKSDB_NAMESPACE::Slice>(&output.new_value)) {
    value = *existing_operand;
  } else {
    return RM_MERGE_FAILED;  // Columns.
  }
  if (IsTooLarge(value.size())) return RM_MERGE_FAILED;
  take(context, value.data(), value.size());
  return RM_MERGED;
}

// RocksDB knows kMustMerge since 8.1.
template <class Operator>
auto MustMerge(const typename Operator::MergeOperationOutput& output, int)
    -> decltype(output.op_failure_scope == Operator::OpFailureScope::kMustMerge) {
  return output.op_failure_scope == Operator::OpFailureScope::kMustMerge;
}

template <class Operator>
bool MustMerge(const typename Operator::MergeOperationOutput&, long) {
  return false;
}

template <class Operator>
int FullMerge(const Operator& merges, const ROCKSDB_NAMESPACE::Slice& key, const ROCKSDB_NAMESPACE::Slice* base,
              const std::vector<ROCKSDB_NAMESPACE::Slice>& operands, ROCKSDB_NAMESPACE::Logger* logger,
              rm_take_bytes take, void* context, long) {
  const typename Operator::MergeOperationInput input(key, base, operands, logger);
  std::string made;
  ROCKSDB_NAMESPACE::Slice existing_operand(nullptr, 0);
  typename Operator::MergeOperationOutput output(made, existing_operand);
  if (!merges.FullMergeV2(input, &output)) return MustMerge<Operator>(output, 0) ? RM_MERGE_KEEP : RM_MERGE_FAILED;
  const ROCKSDB_NAMESPACE::Slice value = existing_operand.data() != nullptr ? existing_operand : made;
  if (IsTooLarge(value.size())) return RM_MERGE_FAILED;
  take(context, value.data(), value.size());
  return RM_MERGED;
}

// Calls a filter as RocksDB does: FilterV4, which it has since 11.2, FilterV3, which it has since 8.0, or FilterV2.
template <class Filter>
auto CallFilter(const Filter& filter, int level, const ROCKSDB_NAMESPACE::Slice& key, typename Filter::ValueType kind,
                const ROCKSDB_NAMESPACE::Slice& value, std::string* made, std::string* skip_until, int)
    -> decltype(filter.FilterV4(level, key, kind, &value, nullptr, made, nullptr, skip_until, nullptr)) {
  std::vector<std::pair<std::string, std::string>> columns;
  return filter.FilterV4(level, key, kind, &value, nullptr, made,
                         kind == Filter::ValueType::kMergeOperand ? nullptr : &columns, skip_until, nullptr);
}

template <class Filter>
auto CallFilter(const Filter& filter, int level, const ROCKSDB_NAMESPACE::Slice& key, typename Filter::ValueType kind,
                const ROCKSDB_NAMESPACE::Slice& value, std::string* made, std::string* skip_until, long)
    -> decltype(filter.FilterV3(level, key, kind, &value, nullptr, made, nullptr, skip_until)) {
  std::vector<std::pair<std::string, std::string>> columns;
  return filter.FilterV3(level, key, kind, &value, nullptr, made,
                         kind == Filter::ValueType::kMergeOperand ? nullptr : &columns, skip_until);
}

template <class Filter>
typename Filter::Decision CallFilter(const Filter& filter, int level, const ROCKSDB_NAMESPACE::Slice& key,
                                     typename Filter::ValueType kind, const ROCKSDB_NAMESPACE::Slice& value,
                                     std::string* made, std::string* skip_until, ...) {
  return filter.FilterV2(level, key, kind, value, made, skip_until);
}

// Fills in what a context has since 8.8.
template <class Context>
auto Complete(Context* context, int level, ROCKSDB_NAMESPACE::TablePropertiesCollection properties, int)
    -> decltype(context->input_table_properties, void()) {
  context->input_start_level = level;
  context->input_table_properties = std::move(properties);
}

template <class Context>
void Complete(Context*, int, ROCKSDB_NAMESPACE::TablePropertiesCollection, long) {}

// Fills in what a context has since 10.0.
template <class Context>
auto SetLevels(Context* context, int num_levels, int) -> decltype(context->num_levels, void()) {
  context->num_levels = num_levels;
  // The largest sequence number: data is not placed by age.
  context->last_level_inclusive_max_seqno_threshold = (uint64_t{1} << 56) - 1;
}

template <class Context>
void SetLevels(Context*, int, long) {}

inline ROCKSDB_NAMESPACE::EntryType ToEntryType(int kind) {
  switch (kind) {
    case RM_ENTRY_PUT:
      return ROCKSDB_NAMESPACE::kEntryPut;
    case RM_ENTRY_DELETE:
      return ROCKSDB_NAMESPACE::kEntryDelete;
    case RM_ENTRY_SINGLE_DELETE:
      return ROCKSDB_NAMESPACE::kEntrySingleDelete;
    case RM_ENTRY_MERGE:
      return ROCKSDB_NAMESPACE::kEntryMerge;
    case RM_ENTRY_RANGE_DELETION:
      return ROCKSDB_NAMESPACE::kEntryRangeDeletion;
    case RM_ENTRY_WIDE_COLUMNS:
      return ROCKSDB_NAMESPACE::kEntryWideColumnEntity;
#if ROCKMILL_ROCKSDB_SINCE(9, 3)
    case RM_ENTRY_TIMED_PUT:
      return ROCKSDB_NAMESPACE::kEntryTimedPut;
#endif
    default:
      return ROCKSDB_NAMESPACE::kEntryOther;
  }
}

// What RocksDB tells of a compaction.
struct Compaction {
  std::string family;
  uint32_t cf_id = 0;
  int base_input_level = 0;
  bool is_full = false;
  bool is_manual = false;
  ROCKSDB_NAMESPACE::CompressionType compression = ROCKSDB_NAMESPACE::kNoCompression;
  ROCKSDB_NAMESPACE::TablePropertiesCollection input_properties;
};

// The objects of a column family that jobs call. Its names are those that RocksDB writes into OPTIONS.
struct Objects {
  Objects(const ROCKSDB_NAMESPACE::ColumnFamilyOptions& options, std::shared_ptr<ROCKSDB_NAMESPACE::Logger> log)
      : merge_operator(options.merge_operator),
        prefix_extractor(options.prefix_extractor),
        comparator(options.comparator),
        filter(options.compaction_filter),
        filter_factory(options.compaction_filter_factory),
        num_levels(options.num_levels),
        has_foreign_objects(HasForeignObjects(options)),
        logger(std::move(log)) {
    for (const auto& own : options.cf_paths) paths.push_back(own.path);
    if (logger == nullptr) logger = std::make_shared<NoLogger>();
    if (prefix_extractor != nullptr) prefix_extractor_name = prefix_extractor->GetId();
    if (filter != nullptr) filter_name = filter->GetId();
    if (filter_factory != nullptr) filter_factory_name = filter_factory->GetId();
    for (const auto& factory : options.table_properties_collector_factories) {
      if (factory == nullptr) continue;
      collector_factories.push_back(factory);
      collector_factory_names.push_back(factory->GetId());
      builtin_collector_factories.push_back(IsCompactOnDeletion(*factory));
    }
    if (merge_operator == nullptr) return;
    merge_operator_name = merge_operator->GetId();
    FindBuiltinMergeOperator();
  }

  bool HasFilter() const { return filter != nullptr || filter_factory != nullptr; }

  std::shared_ptr<ROCKSDB_NAMESPACE::MergeOperator> merge_operator;
  std::string merge_operator_name;
  // Empty if it is not of a class of RocksDB.
  std::string builtin_merge_operator;
  // Null if it has none.
  const std::string* merge_delimiter = nullptr;
  std::shared_ptr<const ROCKSDB_NAMESPACE::SliceTransform> prefix_extractor;
  std::string prefix_extractor_name;
  // The program keeps it as long as a database uses it.
  const ROCKSDB_NAMESPACE::Comparator* comparator;
  // As above. It comes before the factory.
  const ROCKSDB_NAMESPACE::CompactionFilter* filter;
  std::string filter_name;
  std::shared_ptr<ROCKSDB_NAMESPACE::CompactionFilterFactory> filter_factory;
  std::string filter_factory_name;
  std::vector<std::shared_ptr<ROCKSDB_NAMESPACE::TablePropertiesCollectorFactory>> collector_factories;
  std::vector<std::string> collector_factory_names;
  std::vector<uint8_t> builtin_collector_factories;
  int num_levels;
  // Whether an object of the program has the name of one of RocksDB's.
  bool has_foreign_objects;
  std::vector<std::string> paths;
  std::shared_ptr<ROCKSDB_NAMESPACE::Logger> logger;

 private:
  // Whether two objects are of one class: they have one table of virtual functions.
  template <class Object>
  static bool HaveOneClass(const Object& a, const Object& b) {
    return *reinterpret_cast<const void* const*>(&a) == *reinterpret_cast<const void* const*>(&b);
  }

  // A class of the program may have any name, and be derived from RocksDB's.
  static bool IsCompactOnDeletion(const ROCKSDB_NAMESPACE::TablePropertiesCollectorFactory& factory) {
    const std::shared_ptr<ROCKSDB_NAMESPACE::TablePropertiesCollectorFactory> own =
        ROCKSDB_NAMESPACE::NewCompactOnDeletionCollectorFactory(0, 0);
    return HaveOneClass(factory, *own);
  }

  static bool HasForeignObjects(const ROCKSDB_NAMESPACE::ColumnFamilyOptions& options) {
    const auto is_named = [](const ROCKSDB_NAMESPACE::Customizable* object, const char* name) {
      return object != nullptr && std::strcmp(object->Name(), name) == 0;
    };
    for (const auto* own : {ROCKSDB_NAMESPACE::BytewiseComparator(), ROCKSDB_NAMESPACE::ReverseBytewiseComparator()}) {
      if (options.comparator != own && is_named(options.comparator, own->Name())) return true;
    }
    const auto prefixes = ROCKSDB_NAMESPACE::NewSstPartitionerFixedPrefixFactory(1);
    const auto* partitioner = options.sst_partitioner_factory.get();
    if (is_named(partitioner, prefixes->Name()) && !HaveOneClass(*partitioner, *prefixes)) return true;
    return options.prefix_extractor != nullptr && HasForeignPrefixes(*options.prefix_extractor);
  }

  // RocksDB's C API wraps its own extractors in another class, so they are asked about some keys.
  static bool HasForeignPrefixes(const ROCKSDB_NAMESPACE::SliceTransform& extractor) {
    const std::string id = extractor.GetId();
    if (id.compare(0, 8, "rocksdb.") != 0) return false;
    std::shared_ptr<const ROCKSDB_NAMESPACE::SliceTransform> own;
    const auto made = ROCKSDB_NAMESPACE::SliceTransform::CreateFromString({}, id, &own);
    if (!made.ok() || own == nullptr) return false;
    std::string key;
    for (char byte = 'a'; byte <= 'z'; ++byte) {
      key += byte;
      const bool has_prefix = own->InDomain(key);
      if (extractor.InDomain(key) != has_prefix) return true;
      if (has_prefix && extractor.Transform(key) != own->Transform(key)) return true;
    }
    return false;
  }

  // A program may have registered its own class under a name of RocksDB's, and the first one that has registered wins.
  static bool KnowsRocksDbsOperatorsFirst(const ROCKSDB_NAMESPACE::ObjectLibrary& library) {
    static constexpr const char* kOwn[] = {"StringAppendOperator", "StringAppendTESTOperator", "MergeSortOperator",
                                           "BytesXOR",             "UInt64AddOperator",        "MaxOperator",
                                           "PutOperator",          "put_v1"};
    std::vector<std::string> names;
    library.GetFactoryNames(ROCKSDB_NAMESPACE::MergeOperator::Type(), &names);
    return names.size() >= std::size(kOwn) && std::equal(std::begin(kOwn), std::end(kOwn), names.begin());
  }

  // A name proves nothing, so the class is compared with that of an operator that RocksDB makes by name.
  void FindBuiltinMergeOperator() {
    ROCKSDB_NAMESPACE::ConfigOptions config;
    const auto library = ROCKSDB_NAMESPACE::ObjectLibrary::Default();
    config.registry = std::make_shared<ROCKSDB_NAMESPACE::ObjectRegistry>(library);
    for (const char* name : {"uint64add", "put", "put_v1", "max", "bytesxor", "stringappend", "stringappendtest"}) {
      std::shared_ptr<ROCKSDB_NAMESPACE::MergeOperator> own;
      const auto made = ROCKSDB_NAMESPACE::MergeOperator::CreateFromString(config, name, &own);
      if (!KnowsRocksDbsOperatorsFirst(*library)) return;
      if (!made.ok() || own == nullptr || !HaveOneClass(*own, *merge_operator)) continue;
      merge_delimiter = merge_operator->GetOptions<std::string>("Delimiter");
      builtin_merge_operator = name;
      return;
    }
  }
};

// The objects of one job, and what the library is given of them.
class JobObjects {
 public:
  JobObjects(std::shared_ptr<const Objects> objects, std::string missing, std::shared_ptr<const Compaction> compaction,
             uint32_t cf_id, std::string path)
      : objects_(std::move(objects)),
        missing_(std::move(missing)),
        compaction_(std::move(compaction)),
        cf_id_(cf_id),
        path_(std::move(path)) {
    plugins_.struct_size = sizeof(plugins_);
    plugins_.state = this;
    plugins_.release = [](void* state) { delete static_cast<JobObjects*>(state); };
    if (!path_.empty()) plugins_.path = path_.c_str();
    if (objects_ == nullptr) {
      plugins_.missing = missing_.c_str();
      return;
    }
    if (objects_->merge_operator != nullptr) SetMergeOperator();
    if (objects_->prefix_extractor != nullptr) SetPrefixExtractor();
    // Jobs with timestamps are declined.
    if (objects_->comparator != nullptr && objects_->comparator->timestamp_size() == 0) SetComparator();
    SetFilter();
    SetCollectors();
  }
  JobObjects(const JobObjects&) = delete;
  JobObjects& operator=(const JobObjects&) = delete;

  const rm_plugins* Plugins() const { return &plugins_; }

  uint32_t PickedCompression() const {
    return compaction_ != nullptr ? static_cast<uint32_t>(compaction_->compression) + 1 : 0;
  }

 private:
  void SetMergeOperator() {
    plugins_.merge_operator = objects_->merge_operator_name.c_str();
    if (!objects_->builtin_merge_operator.empty()) {
      plugins_.builtin_merge_operator = objects_->builtin_merge_operator.c_str();
    }
    if (objects_->merge_delimiter != nullptr) {
      delimiter_ = {objects_->merge_delimiter->data(), objects_->merge_delimiter->size()};
      plugins_.merge_delimiter = &delimiter_;
    }
    plugins_.merges_single_operand =
        WithoutExceptions([this] { return objects_->merge_operator->AllowSingleOperand(); }, false);
    plugins_.full_merge = [](void* state, rm_bytes key, const rm_bytes* base, const rm_bytes* operands, size_t count,
                             rm_take_bytes take, void* context) {
      const auto call = [&] {
        const auto& objects = *static_cast<JobObjects*>(state)->objects_;
        std::vector<ROCKSDB_NAMESPACE::Slice> all;
        for (size_t at = 0; at < count; ++at) all.push_back(ToSlice(operands[at]));
        const auto below = base != nullptr ? ToSlice(*base) : ROCKSDB_NAMESPACE::Slice();
        return FullMerge(*objects.merge_operator, ToSlice(key), base != nullptr ? &below : nullptr, all,
                         objects.logger.get(), take, context, 0);
      };
      return WithoutExceptions(call, static_cast<int>(RM_MERGE_FAILED));
    };
    plugins_.partial_merge = [](void* state, rm_bytes key, const rm_bytes* operands, size_t count, rm_take_bytes take,
                                void* context) {
      const auto call = [&]() -> int {
        const auto& objects = *static_cast<JobObjects*>(state)->objects_;
        std::deque<ROCKSDB_NAMESPACE::Slice> all;
        for (size_t at = 0; at < count; ++at) all.push_back(ToSlice(operands[at]));
        std::string made;
        if (!objects.merge_operator->PartialMergeMulti(ToSlice(key), all, &made, objects.logger.get())) {
          return RM_MERGE_KEEP;
        }
        if (IsTooLarge(made.size())) return RM_MERGE_FAILED;
        take(context, made.data(), made.size());
        return RM_MERGED;
      };
      return WithoutExceptions(call, static_cast<int>(RM_MERGE_FAILED));
    };
  }

  void SetPrefixExtractor() {
    plugins_.prefix_extractor = objects_->prefix_extractor_name.c_str();
    plugins_.prefix_len = [](void* state, rm_bytes bytes) {
      constexpr int64_t kOutside = -1, kFailed = -2;
      const auto call = [&]() -> int64_t {
        const auto& extractor = *static_cast<JobObjects*>(state)->objects_->prefix_extractor;
        const auto key = ToSlice(bytes);
        if (!extractor.InDomain(key)) return kOutside;
        const auto prefix = extractor.Transform(key);
        return key.starts_with(prefix) ? static_cast<int64_t>(prefix.size()) : kFailed;
      };
      return WithoutExceptions(call, kFailed);
    };
  }

  void SetComparator() {
    plugins_.comparator = objects_->comparator->Name();
    plugins_.compare = [](void* state, rm_bytes a, rm_bytes b, int* order) {
      const auto call = [&] {
        *order = static_cast<JobObjects*>(state)->objects_->comparator->Compare(ToSlice(a), ToSlice(b));
        return 0;
      };
      return WithoutExceptions(call, 1);
    };
  }

  void SetFilter() {
    if (objects_->filter != nullptr) plugins_.compaction_filter = objects_->filter_name.c_str();
    if (objects_->filter_factory != nullptr) {
      plugins_.compaction_filter_factory = objects_->filter_factory_name.c_str();
    }
    plugins_.create_filter = [](void* state) {
      const auto call = [state] { return static_cast<JobObjects*>(state)->CreateFilter(); };
      return WithoutExceptions(call, static_cast<int>(RM_FILTER_NOT_MADE));
    };
    plugins_.filter = [](void* state, rm_bytes key, int kind, rm_bytes value, rm_take_bytes take, void* context) {
      const auto call = [&] { return static_cast<JobObjects*>(state)->Filter(key, kind, value, take, context); };
      return WithoutExceptions(call, static_cast<int>(RM_FILTER_FAILED));
    };
  }

  void SetCollectors() {
    for (const auto& name : objects_->collector_factory_names) collector_names_.push_back(name.c_str());
    plugins_.collector_factories = collector_names_.data();
    plugins_.num_collector_factories = collector_names_.size();
    plugins_.builtin_collector_factories = objects_->builtin_collector_factories.data();
    using Collector = ROCKSDB_NAMESPACE::TablePropertiesCollector;
    plugins_.create_collector = [](void* state, size_t factory, int output_level, void** collector) {
      const auto call = [&] {
        const auto* job = static_cast<JobObjects*>(state);
        ROCKSDB_NAMESPACE::TablePropertiesCollectorFactory::Context context;
        context.column_family_id = job->cf_id_;
        context.level_at_creation = output_level;
        SetLevels(&context, job->objects_->num_levels, 0);
        *collector = job->objects_->collector_factories[factory]->CreateTablePropertiesCollector(context);
        return 0;
      };
      return WithoutExceptions(call, 1);
    };
    // RocksDB passes over an error of a collector, which leaves its properties out.
    plugins_.collect_entry = [](void*, void* collector, rm_bytes key, rm_bytes value, int kind, uint64_t sequence,
                                uint64_t file_size) {
      const auto call = [&] {
        static_cast<Collector*>(collector)
            ->AddUserKey(ToSlice(key), ToSlice(value), ToEntryType(kind), sequence, file_size)
            .PermitUncheckedError();
        return 0;
      };
      return WithoutExceptions(call, 1);
    };
    plugins_.collect_block = [](void*, void* collector, uint64_t uncompressed_bytes) {
      const auto call = [&] {
        static_cast<Collector*>(collector)->BlockAdd(uncompressed_bytes, 0, 0);
        return 0;
      };
      return WithoutExceptions(call, 1);
    };
    plugins_.finish_collector = [](void*, void* collector, rm_take_property take, void* context) {
      const auto call = [&] { return Finish(static_cast<Collector*>(collector), take, context); };
      return WithoutExceptions(call, static_cast<int>(RM_COLLECT_FAILED));
    };
    plugins_.destroy_collector = [](void*, void* collector) {
      const auto call = [&] {
        delete static_cast<Collector*>(collector);
        return true;
      };
      WithoutExceptions(call, false);
    };
  }

  static int Finish(ROCKSDB_NAMESPACE::TablePropertiesCollector* collector, rm_take_property take, void* context) {
    ROCKSDB_NAMESPACE::UserCollectedProperties properties;
    const bool is_ok = collector->Finish(&properties).ok();
    const auto take_all = [&](const ROCKSDB_NAMESPACE::UserCollectedProperties& all, int is_readable) {
      for (const auto& property : all) {
        take(context, is_readable, {property.first.data(), property.first.size()},
             {property.second.data(), property.second.size()});
      }
    };
    // RocksDB 8.9 to 9.5 also writes what a collector has added before it fails (NotifyCollectTableCollectorsOnFinish).
    constexpr bool kKeepsFailed = ROCKMILL_ROCKSDB_SINCE(8, 9) && !ROCKMILL_ROCKSDB_SINCE(9, 6);
    if (is_ok || kKeepsFailed) take_all(properties, 0);
    if (is_ok) take_all(collector->GetReadableProperties(), 1);
    return collector->NeedCompact() ? RM_COLLECTED_NEEDS_COMPACTION : RM_COLLECTED;
  }

  int CreateFilter() {
    if (compaction_ == nullptr) return RM_FILTER_NOT_MADE;
    filter_ = objects_->filter;
    if (filter_ == nullptr) {
      using ROCKSDB_NAMESPACE::TableFileCreationReason;
      auto& factory = *objects_->filter_factory;
      if (!factory.ShouldFilterTableFileCreation(TableFileCreationReason::kCompaction)) return RM_FILTER_NONE;
      ROCKSDB_NAMESPACE::CompactionFilter::Context context;
      context.is_full_compaction = compaction_->is_full;
      context.is_manual_compaction = compaction_->is_manual;
      context.column_family_id = compaction_->cf_id;
      context.reason = TableFileCreationReason::kCompaction;
      Complete(&context, compaction_->base_input_level, compaction_->input_properties, 0);
      filter_of_factory_ = factory.CreateCompactionFilter(context);
      filter_ = filter_of_factory_.get();
    }
    if (filter_ == nullptr) return RM_FILTER_NONE;
    // RocksDB reports that it supports no others.
    return filter_->IgnoreSnapshots() ? RM_FILTER_MADE : RM_FILTER_NOT_MADE;
  }

  int Filter(rm_bytes key, int kind, rm_bytes value, rm_take_bytes take, void* context) {
    using ROCKSDB_NAMESPACE::CompactionFilter;
    const auto type = kind == RM_FILTERED_MERGE_OPERAND ? CompactionFilter::ValueType::kMergeOperand
                                                        : CompactionFilter::ValueType::kValue;
    std::string made, skip_until;
    const auto decision =
        CallFilter(*filter_, compaction_->base_input_level, ToSlice(key), type, ToSlice(value), &made, &skip_until, 0);
    switch (decision) {
      case CompactionFilter::Decision::kKeep:
        return RM_FILTER_KEEP;
      case CompactionFilter::Decision::kRemove:
        return RM_FILTER_REMOVE;
      case CompactionFilter::Decision::kPurge:
        return RM_FILTER_PURGE;
      case CompactionFilter::Decision::kChangeValue:
        if (IsTooLarge(made.size())) return RM_FILTER_FAILED;
        take(context, made.data(), made.size());
        return RM_FILTER_CHANGE_VALUE;
      case CompactionFilter::Decision::kRemoveAndSkipUntil:
        take(context, skip_until.data(), skip_until.size());
        return RM_FILTER_SKIP_UNTIL;
      default:
        return RM_FILTER_FAILED;  // Columns and blobs.
    }
  }

  const std::shared_ptr<const Objects> objects_;
  const std::string missing_;
  // Null if RocksDB did not announce it.
  const std::shared_ptr<const Compaction> compaction_;
  const uint32_t cf_id_;
  const std::string path_;
  std::vector<const char*> collector_names_;
  const ROCKSDB_NAMESPACE::CompactionFilter* filter_ = nullptr;
  std::unique_ptr<ROCKSDB_NAMESPACE::CompactionFilter> filter_of_factory_;
  rm_bytes delimiter_ = {};
  rm_plugins plugins_ = {};
};

// The objects that a program has attached, and the events of the databases that use them. RocksDB has no function that leads
// from a job to the options of its column family.
class Attachment {
 public:
  using CompactionJobInfo = ROCKSDB_NAMESPACE::CompactionJobInfo;

  // Attaches the objects of a column family that a database has when it is opened.
  void Add(const std::string& family, std::shared_ptr<const Objects> objects) {
    const std::lock_guard<std::mutex> lock(mutex_);
    families_[family].swap(objects);
  }

  // Attaches the objects of a column family that a database has made since, in place of those of another one of its name.
  void AddMade(ROCKSDB_NAMESPACE::DB* db, const std::string& family, uint32_t id,
               std::shared_ptr<const Objects> objects) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& known = databases_[db->GetName()].families[family];
    known.id = id;
    known.made.swap(objects);
  }

  // Attaches the objects of all column families that are not attached by name.
  void AddOthers(std::shared_ptr<const Objects> objects) {
    const std::lock_guard<std::mutex> lock(mutex_);
    others_.swap(objects);
  }

  // Sets db_paths, in which column families without cf_paths have their files.
  void SetPaths(std::vector<std::string> paths) {
    const std::lock_guard<std::mutex> lock(mutex_);
    paths_.swap(paths);
  }

  void FamilySeen(ROCKSDB_NAMESPACE::DB* db, const std::string& family, uint32_t id) {
    const std::string session = SessionOf(db);
    const std::lock_guard<std::mutex> lock(mutex_);
    See(Session(db, session), family, id);
  }

  // RocksDB does not say of which database the column family is.
  void FamilyEnds(const std::string& family, uint32_t id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_[family].insert(id);
  }

  void CompactionBegins(ROCKSDB_NAMESPACE::DB* db, const CompactionJobInfo& info) {
    const std::string session_id = SessionOf(db);
    const auto compaction = std::make_shared<Compaction>();
    compaction->family = info.cf_name;
    compaction->cf_id = info.cf_id;
    compaction->base_input_level = info.base_input_level;
    compaction->is_full = info.stats.is_full_compaction;
    compaction->is_manual = info.compaction_reason == ROCKSDB_NAMESPACE::CompactionReason::kManualCompaction;
    compaction->compression = info.compression;
    compaction->input_properties = info.table_properties;
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& database = Session(db, session_id);
    See(database, info.cf_name, info.cf_id);
    database.jobs[info.job_id] = compaction;
  }

  void CompactionEnds(ROCKSDB_NAMESPACE::DB* db, const CompactionJobInfo& info) {
    const std::string session = SessionOf(db);
    const std::lock_guard<std::mutex> lock(mutex_);
    Session(db, session).jobs.erase(info.job_id);
  }

  // A database closes. RocksDB announces the ends of its compactions no more.
  void DatabaseCloses() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& database : databases_) database.second.jobs.clear();
  }

  // Returns the objects of a job, which the library releases.
  JobObjects* ObjectsOf(const ROCKSDB_NAMESPACE::CompactionServiceJobInfo& info) {
    std::shared_ptr<const Objects> objects;
    std::shared_ptr<const Compaction> compaction;
    const char* missing = nullptr;
    uint32_t id = 0;
    std::string path;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      missing = Find(info, &objects, &compaction, &id);
      const auto& paths = objects != nullptr && !objects->paths.empty() ? objects->paths : paths_;
      if (!paths.empty()) path = paths.front() != info.db_name ? paths.front() : paths.back();
    }
    if (objects != nullptr && objects->HasFilter() && compaction == nullptr) {
      missing = kNotAnnounced;
      objects = nullptr;
    }
    return new JobObjects(std::move(objects), missing != nullptr ? missing : "", std::move(compaction), id,
                          std::move(path));
  }

 private:
  // A column family of a database.
  struct Family {
    // The id to which the objects belong: a column family that was dropped and made again has another one.
    uint32_t id = 0;
    // Those of AddMade, or null.
    std::shared_ptr<const Objects> made;
  };

  // A database, also after it was closed: ids are the same when it is opened again.
  struct Database {
    std::string session;
    std::map<std::string, Family> families;
    // The compactions of this session.
    std::map<uint64_t, std::shared_ptr<const Compaction>> jobs;
  };

  // No column family has this id.
  static constexpr uint32_t kNoId = UINT32_MAX;
  static constexpr const char* kNotAnnounced =
      "RocksDB has not announced the compaction: it announces none of CompactFiles, nor manual ones while they are "
      "paused";

  static std::string SessionOf(ROCKSDB_NAMESPACE::DB* db) {
    std::string session;
    return db->GetDbSessionId(session).ok() ? session : "";
  }

  Database& Session(ROCKSDB_NAMESPACE::DB* db, const std::string& session) {
    auto& database = databases_[db->GetName()];
    if (database.session != session) {
      database.session = session;
      database.jobs.clear();
    }
    return database;
  }

  // The first id is the one that the column family had when the database was opened, unless one of its name has ended with
  // another id.
  void See(Database& database, const std::string& family, uint32_t id) {
    const auto ended = ended_.find(family);
    const bool is_known = ended == ended_.end() || ended->second.count(id) > 0;
    database.families.emplace(family, Family{is_known ? id : kNoId, nullptr});
  }

  // Returns why the objects of a job are not known, or null.
  const char* Find(const ROCKSDB_NAMESPACE::CompactionServiceJobInfo& info, std::shared_ptr<const Objects>* objects,
                   std::shared_ptr<const Compaction>* compaction, uint32_t* id) {
    const auto opened = databases_.find(info.db_name);
    const Database none;
    const Database& database = opened != databases_.end() ? opened->second : none;
    const std::string* name = nullptr;
    const auto job = database.jobs.find(info.job_id >> 32);
    if (job != database.jobs.end() && database.session == info.db_session_id) {
      *compaction = job->second;
      name = &job->second->family;
      *id = job->second->cf_id;
    }
#if ROCKMILL_ROCKSDB_SINCE(10, 4)
    else {
      *id = info.cf_id;
      for (const auto& family : database.families) {
        if (family.second.id == *id) name = &family.first;
      }
      if (name == nullptr && *id == 0) name = &default_family_;
    }
#endif
    if (name == nullptr) return kNotAnnounced;
    const auto known = database.families.find(*name);
    const bool is_its = known != database.families.end() ? known->second.id == *id : *id == 0;
    if (is_its && known != database.families.end() && known->second.made != nullptr) {
      *objects = known->second.made;
      return nullptr;
    }
    const auto attached = families_.find(*name);
    if (attached == families_.end()) {
      *objects = others_;
      return others_ != nullptr ? nullptr : "the options of the column family were not attached";
    }
    if (!is_its) return "the column family was made after Attach; call AddColumnFamily";
    *objects = attached->second;
    return nullptr;
  }

  const std::string default_family_ = "default";
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Objects>> families_;
  std::shared_ptr<const Objects> others_;
  std::vector<std::string> paths_;
  // By name. Their number is that of the databases that were opened with these options.
  std::map<std::string, Database> databases_;
  // Ids of column families whose handles were destroyed.
  std::map<std::string, std::set<uint32_t>> ended_;
};

// Hears of compactions before they are offered to the service.
class Listener final : public ROCKSDB_NAMESPACE::EventListener {
 public:
  explicit Listener(std::shared_ptr<Attachment> attachment) : attachment_(std::move(attachment)) {}

  // What RemoveListener finds it by. Its name stays empty, so that it does not stand in OPTIONS.
  static const char* Nick() { return "RockmillAttachment"; }
  const char* NickName() const override { return Nick(); }

  void OnCompactionBegin(ROCKSDB_NAMESPACE::DB* db, const ROCKSDB_NAMESPACE::CompactionJobInfo& info) override {
    Guard([&] { attachment_->CompactionBegins(db, info); });
  }

  void OnCompactionCompleted(ROCKSDB_NAMESPACE::DB* db, const ROCKSDB_NAMESPACE::CompactionJobInfo& info) override {
    Guard([&] { attachment_->CompactionEnds(db, info); });
  }

  void OnFlushBegin(ROCKSDB_NAMESPACE::DB* db, const ROCKSDB_NAMESPACE::FlushJobInfo& info) override {
    Guard([&] { attachment_->FamilySeen(db, info.cf_name, info.cf_id); });
  }

  void OnColumnFamilyHandleDeletionStarted(ROCKSDB_NAMESPACE::ColumnFamilyHandle* handle) override {
    Guard([&] { attachment_->FamilyEnds(handle->GetName(), handle->GetID()); });
  }

 private:
  // A job of which nothing was noted is declined.
  template <class Work>
  static void Guard(Work work) {
    const auto call = [&] {
      work();
      return true;
    };
    WithoutExceptions(call, false);
  }

  const std::shared_ptr<Attachment> attachment_;
};

}  // namespace internal
}  // namespace rockmill
