// The objects of a C++ program that compactions call: merge operators. rockmill/rocksdb.hpp includes this file.
#pragma once

#include <rockmill.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/listener.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/options.h>
#include <rocksdb/version.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
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

// The objects of a column family that jobs call. Its names are those that RocksDB writes into OPTIONS.
struct Objects {
  Objects(const ROCKSDB_NAMESPACE::ColumnFamilyOptions& options, std::shared_ptr<ROCKSDB_NAMESPACE::Logger> log)
      : merge_operator(options.merge_operator), logger(std::move(log)) {
    if (logger == nullptr) logger = std::make_shared<NoLogger>();
    if (merge_operator == nullptr) return;
    merge_operator_name = merge_operator->GetId();
    FindBuiltinMergeOperator();
  }

  std::shared_ptr<ROCKSDB_NAMESPACE::MergeOperator> merge_operator;
  std::string merge_operator_name;
  // Empty if it is not of a class of RocksDB.
  std::string builtin_merge_operator;
  // Null if it has none.
  const std::string* merge_delimiter = nullptr;
  std::shared_ptr<ROCKSDB_NAMESPACE::Logger> logger;

 private:
  // A name proves nothing, so the class is compared with that of an operator that RocksDB makes by name.
  void FindBuiltinMergeOperator() {
    const auto class_of = [](const ROCKSDB_NAMESPACE::MergeOperator* object) {
      return *reinterpret_cast<const void* const*>(object);  // Its table of virtual functions.
    };
    for (const char* name : {"uint64add", "put", "put_v1", "max", "bytesxor", "stringappend", "stringappendtest"}) {
      std::shared_ptr<ROCKSDB_NAMESPACE::MergeOperator> own;
      const auto made = ROCKSDB_NAMESPACE::MergeOperator::CreateFromString({}, name, &own);
      if (!made.ok() || own == nullptr || class_of(own.get()) != class_of(merge_operator.get())) continue;
      merge_delimiter = merge_operator->GetOptions<std::string>("Delimiter");
      builtin_merge_operator = name;
      return;
    }
  }
};

// The objects of one job, and what the library is given of them.
class JobObjects {
 public:
  JobObjects(std::shared_ptr<const Objects> objects, std::string missing)
      : objects_(std::move(objects)), missing_(std::move(missing)) {
    plugins_.struct_size = sizeof(plugins_);
    plugins_.state = this;
    plugins_.release = [](void* state) { delete static_cast<JobObjects*>(state); };
    if (objects_ == nullptr) {
      plugins_.missing = missing_.c_str();
    } else if (objects_->merge_operator != nullptr) {
      SetMergeOperator();
    }
  }
  JobObjects(const JobObjects&) = delete;
  JobObjects& operator=(const JobObjects&) = delete;

  const rm_plugins* Plugins() const { return &plugins_; }

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

  const std::shared_ptr<const Objects> objects_;
  const std::string missing_;
  rm_bytes delimiter_ = {};
  rm_plugins plugins_ = {};
};

// What a program has attached, and what RocksDB tells of the databases that use it. RocksDB has no function that leads from a
// job to the options of its column family.
class Attachment {
 public:
  using CompactionJobInfo = ROCKSDB_NAMESPACE::CompactionJobInfo;

  // Attaches the objects of a column family that a database has when it is opened.
  void Add(const std::string& family, std::shared_ptr<const Objects> objects) {
    const std::lock_guard<std::mutex> lock(mutex_);
    families_[family].swap(objects);
  }

  // Attaches the objects of a column family that was made since, in place of those of another one of its name.
  void AddMade(const std::string& family, uint32_t id, std::shared_ptr<const Objects> objects) {
    const std::lock_guard<std::mutex> lock(mutex_);
    families_[family].swap(objects);
    for (auto& session : sessions_) session.second.families[family] = id;
    if (sessions_.empty()) told_[family] = id;
  }

  // Attaches the objects of all column families that are not attached by name.
  void AddOthers(std::shared_ptr<const Objects> objects) {
    const std::lock_guard<std::mutex> lock(mutex_);
    others_.swap(objects);
  }

  void FamilySeen(ROCKSDB_NAMESPACE::DB* db, const std::string& family, uint32_t id) {
    const std::string session = SessionOf(db);
    const std::lock_guard<std::mutex> lock(mutex_);
    Session(db, session).See(family, id);
  }

  // RocksDB does not say of which database the column family is.
  void FamilyEnds(const std::string& family, uint32_t id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& session : sessions_) session.second.See(family, id);
    if (sessions_.empty()) told_.emplace(family, id);
  }

  void CompactionBegins(ROCKSDB_NAMESPACE::DB* db, const CompactionJobInfo& info) {
    const std::string session_id = SessionOf(db);
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& session = Session(db, session_id);
    session.See(info.cf_name, info.cf_id);
    session.jobs[info.job_id] = {info.cf_name, info.cf_id};
  }

  void CompactionEnds(ROCKSDB_NAMESPACE::DB* db, const CompactionJobInfo& info) {
    const std::string session = SessionOf(db);
    const std::lock_guard<std::mutex> lock(mutex_);
    Session(db, session).jobs.erase(info.job_id);
  }

  // A database closes. RocksDB announces the ends of its compactions no more.
  void DatabaseCloses() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& session : sessions_) session.second.jobs.clear();
  }

  // Returns the objects of a job, which the library releases.
  JobObjects* ObjectsOf(const ROCKSDB_NAMESPACE::CompactionServiceJobInfo& info) {
    std::shared_ptr<const Objects> objects;
    const char* missing = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      missing = Find(info, &objects);
    }
    return new JobObjects(std::move(objects), missing != nullptr ? missing : "");
  }

 private:
  struct Job {
    std::string family;
    uint32_t id;
  };

  struct OpenDatabase {
    std::string name;
    // The ids to which objects belong: a column family that was dropped and made again has another one.
    std::map<std::string, uint32_t> families;
    std::map<uint64_t, Job> jobs;

    void See(const std::string& family, uint32_t id) { families.emplace(family, id); }
  };

  static std::string SessionOf(ROCKSDB_NAMESPACE::DB* db) {
    std::string session;
    return db->GetDbSessionId(session).ok() ? session : "";
  }

  OpenDatabase& Session(ROCKSDB_NAMESPACE::DB* db, const std::string& id) {
    const auto known = sessions_.find(id);
    if (known != sessions_.end()) return known->second;
    const std::string& name = db->GetName();
    for (auto session = sessions_.begin(); session != sessions_.end();) {
      session = session->second.name == name ? sessions_.erase(session) : std::next(session);
    }
    auto& added = sessions_[id];
    added.name = name;
    added.families.swap(told_);
    return added;
  }

  // Returns why the objects of a job are not known, or null.
  const char* Find(const ROCKSDB_NAMESPACE::CompactionServiceJobInfo& info, std::shared_ptr<const Objects>* objects) {
    const auto session = sessions_.find(info.db_session_id);
    const OpenDatabase none;
    const OpenDatabase& database = session != sessions_.end() ? session->second : none;
    const std::string* name = nullptr;
    uint32_t id = 0;
    const auto job = database.jobs.find(info.job_id >> 32);
    if (job != database.jobs.end()) {
      name = &job->second.family;
      id = job->second.id;
    }
#if ROCKMILL_ROCKSDB_SINCE(10, 4)
    else {
      id = info.cf_id;
      for (const auto& family : database.families) {
        if (family.second == id) name = &family.first;
      }
      if (name == nullptr && id == 0) name = &ROCKSDB_NAMESPACE::kDefaultColumnFamilyName;
    }
#endif
    if (name == nullptr) return "RocksDB has not announced the compaction, as for CompactFiles";
    const auto attached = families_.find(*name);
    if (attached == families_.end()) {
      *objects = others_;
      return others_ != nullptr ? nullptr : "the options of the column family were not attached";
    }
    const auto known = database.families.find(*name);
    if (known != database.families.end() ? known->second != id : id != 0) return "the column family was made after Attach; call AddColumnFamily";
    *objects = attached->second;
    return nullptr;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Objects>> families_;
  std::shared_ptr<const Objects> others_;
  // By session id.
  std::map<std::string, OpenDatabase> sessions_;
  // Ids of column families that were told before anything was heard of their database.
  std::map<std::string, uint32_t> told_;
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
