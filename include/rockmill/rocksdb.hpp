// Rockmill for C++ programs with RocksDB 7.8 to 11.12. Header only, C++17; link with librockmill.
//
//   rocksdb::Status status;
//   auto rockmill = rockmill::Attach(&options, {{"device", "auto"}, {"threads", "8"}}, &status);
//   // Now open the database. If status is not OK, the options are as they were, and RocksDB compacts by itself.
//
// Compile it with the headers of the RocksDB that the program links, and with that library's choice of RTTI.
#pragma once

#include <rockmill.h>
#include <rockmill/plugins.hpp>
#include <rocksdb/options.h>
#include <rocksdb/status.h>
#include <rocksdb/utilities/transaction_db.h>
#include <rocksdb/version.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#if !ROCKMILL_ROCKSDB_SINCE(7, 8)
#error "Rockmill needs RocksDB 7.8 or newer"
#endif

namespace rockmill {

namespace internal {

// Owns text that the library has allocated.
class Text {
 public:
  explicit Text(char* text = nullptr) : text_(text) {}
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  ~Text() { rm_free(text_); }

  char** Place() { return &text_; }
  std::string Str() const { return text_ != nullptr ? text_ : ""; }

 private:
  char* text_;
};

inline ROCKSDB_NAMESPACE::Status ToStatus(bool is_ok, const Text& error) {
  return is_ok ? ROCKSDB_NAMESPACE::Status::OK()
               : ROCKSDB_NAMESPACE::Status::InvalidArgument("Rockmill", error.Str());
}

inline rm_status ToStatus(ROCKSDB_NAMESPACE::CompactionServiceJobStatus status) {
  using JobStatus = ROCKSDB_NAMESPACE::CompactionServiceJobStatus;
  if (status == JobStatus::kSuccess) return RM_SUCCESS;
  // The other answers, of which older versions have fewer, mean that RocksDB does not use the files.
  return status == JobStatus::kFailure ? RM_FAILURE : RM_USE_LOCAL;
}

// Copies RocksDB's description of a job: the reason and its consequences since 9.7, the levels since 10.2, and the
// column family since 10.4.
inline rm_job_info ToJob(const ROCKSDB_NAMESPACE::CompactionServiceJobInfo& info) {
  rm_job_info job = {};
  job.struct_size = sizeof(job);
  job.rocksdb_version = ROCKSDB_MAJOR << 16 | ROCKSDB_MINOR << 8 | ROCKSDB_PATCH;
  job.db_name = info.db_name.c_str();
  job.db_session_id = info.db_session_id.c_str();
  job.job_id = info.job_id;
  job.is_bottom_priority = info.priority == ROCKSDB_NAMESPACE::Env::Priority::BOTTOM;
#if ROCKMILL_ROCKSDB_SINCE(9, 7)
  job.compaction_reason = static_cast<int32_t>(info.compaction_reason);
  job.is_full_compaction = info.is_full_compaction;
  job.is_manual_compaction = info.is_manual_compaction;
  job.is_bottommost_level = info.bottommost_level;
#else
  job.compaction_reason = RM_UNKNOWN_REASON;
#endif
#if ROCKMILL_ROCKSDB_SINCE(10, 2)
  job.base_input_level = info.base_input_level;
  job.output_level = info.output_level;
#else
  job.base_input_level = RM_UNKNOWN_LEVEL;
  job.output_level = RM_UNKNOWN_LEVEL;
#endif
#if ROCKMILL_ROCKSDB_SINCE(10, 4)
  job.cf_id = info.cf_id;
#else
  job.cf_id = RM_UNKNOWN_CF_ID;
#endif
  return job;
}

// Passes settings to `call` in the library's syntax.
template <class Call>
ROCKSDB_NAMESPACE::Status WithSettings(const std::map<std::string, std::string>& settings, Call call) {
  Text error;
  std::string text;
  for (const auto& setting : settings) {
    const std::string pair = setting.first + "=" + setting.second;
    if (pair.find(';') != std::string::npos || pair.find('\0') != std::string::npos) {
      return ROCKSDB_NAMESPACE::Status::InvalidArgument("Rockmill", setting.first + " contains ';' or a zero byte");
    }
    text += pair + ";";
  }
  return ToStatus(call(text.c_str(), error.Place()), error);
}

}  // namespace internal

enum class LogLevel { kError = RM_LOG_ERROR, kWarn = RM_LOG_WARN, kInfo = RM_LOG_INFO };

// Receives the messages of a service and its clones, each a line. Threads of RocksDB and of the service call it,
// several at once. It must not destroy a service. Its exceptions are dropped. It is not called any more after the
// destruction of the last clone.
using LogFunction = std::function<void(LogLevel level, const std::string& message)>;

namespace internal {

// The function that the library calls.
inline void Log(void* function, int level, const char* message) {
  const auto call = [=] {
    (*static_cast<const LogFunction*>(function))(static_cast<LogLevel>(level), message);
    return true;
  };
  WithoutExceptions(call, false);
}

using NamedObjects = std::vector<std::pair<std::string, std::shared_ptr<const Objects>>>;

// Refuses options with which jobs would fail, or would read other files than the database's.
inline ROCKSDB_NAMESPACE::Status CheckAttachable(const ROCKSDB_NAMESPACE::DBOptions& options, bool has_several_paths,
                                                 bool has_foreign_objects) {
  using ROCKSDB_NAMESPACE::Status;
  if (options.compaction_service != nullptr && std::strcmp(options.compaction_service->Name(), "Rockmill") != 0) {
    return Status::InvalidArgument("Rockmill", "the options have another compaction service");
  }
  if (options.env != ROCKSDB_NAMESPACE::Env::Default()) {
    return Status::NotSupported("Rockmill",
                                "the options have an Env of the program. If it leaves files as they are, set the service "
                                "of NewCompactionService on them");
  }
  if (has_several_paths) {
    return Status::NotSupported("Rockmill",
                                "the options have several db_paths or cf_paths; Rockmill needs all files in one folder");
  }
  if (has_foreign_objects) {
    return Status::NotSupported("Rockmill",
                                "a comparator, prefix extractor or SST partitioner of the program has the name of "
                                "RocksDB's; give it another name");
  }
  return Status::OK();
}

// Removes the listener of an earlier Attach.
inline void RemoveListener(ROCKSDB_NAMESPACE::DBOptions* options) {
  auto& all = options->listeners;
  const auto is_ours = [](const std::shared_ptr<ROCKSDB_NAMESPACE::EventListener>& listener) {
    return listener != nullptr && listener->IsInstanceOf(Listener::Nick());
  };
  all.erase(std::remove_if(all.begin(), all.end(), is_ours), all.end());
}

}  // namespace internal

// Which column families the options of Attach are for.
enum class Families { kDefault, kAll };

// Does RocksDB's compactions, and leaves to RocksDB what it cannot do exactly.
class Service final : public ROCKSDB_NAMESPACE::CompactionService {
 public:
  using JobInfo = ROCKSDB_NAMESPACE::CompactionServiceJobInfo;
  using JobStatus = ROCKSDB_NAMESPACE::CompactionServiceJobStatus;
  using Status = ROCKSDB_NAMESPACE::Status;

  // Takes over an open handle. `log` lives as long as this service.
  explicit Service(rm_service* handle, std::shared_ptr<const LogFunction> log = nullptr,
                   std::shared_ptr<internal::Attachment> attachment = nullptr)
      : handle_(handle), log_(std::move(log)), attachment_(std::move(attachment)) {}
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() override { rm_service_close(handle_, nullptr); }

  // Returns another service with the same threads, memory, devices and counters. Give each database its own: when a
  // database closes, only the jobs that came through its own service stop. Null if *status is not OK.
  std::shared_ptr<Service> Clone(Status* status = nullptr) const {
    internal::Text error;
    rm_service* clone = rm_service_clone(handle_, error.Place());
    if (status != nullptr) *status = internal::ToStatus(clone != nullptr, error);
    return clone != nullptr ? std::make_shared<Service>(clone, log_) : nullptr;
  }

  // Sets a clone of this service on options before a database is opened with them, and lets its compactions call the
  // objects of these options. The function Attach says what else it does. Returns the clone, or null if *status is not
  // OK.
  std::shared_ptr<Service> Attach(ROCKSDB_NAMESPACE::Options* options, Status* status = nullptr,
                                  Families families = Families::kDefault) const {
    const auto objects = std::make_shared<const internal::Objects>(*options, options->info_log);
    return AttachObjects(options, {{ROCKSDB_NAMESPACE::kDefaultColumnFamilyName, objects}},
                         families == Families::kAll ? objects : nullptr, status);
  }

  // The same for a database with several column families.
  std::shared_ptr<Service> Attach(ROCKSDB_NAMESPACE::DBOptions* options,
                                  const std::vector<ROCKSDB_NAMESPACE::ColumnFamilyDescriptor>* families,
                                  Status* status = nullptr) const {
    internal::NamedObjects all;
    for (const auto& family : *families) {
      all.emplace_back(family.name, std::make_shared<const internal::Objects>(family.options, options->info_log));
    }
    return AttachObjects(options, all, nullptr, status);
  }

  // Attaches the options of a column family that was made with CreateColumnFamily. Call it on the service that Attach has
  // returned. Until then, jobs that need an object of the column family are left to RocksDB.
  void AddColumnFamily(ROCKSDB_NAMESPACE::DB* db, ROCKSDB_NAMESPACE::ColumnFamilyHandle* family,
                       const ROCKSDB_NAMESPACE::ColumnFamilyOptions& options) {
    if (attachment_ == nullptr) return;
    attachment_->AddMade(db, family->GetName(), family->GetID(), std::make_shared<internal::Objects>(options, nullptr));
  }

  // Changes settings for all clones. If one is invalid or cannot change, none changes.
  Status ChangeSettings(const std::map<std::string, std::string>& settings) {
    return internal::WithSettings(settings, [this](const char* text, char** error) {
      return rm_service_change_settings(handle_, text, error) == RM_SUCCESS;
    });
  }

  // Waits until the configured devices are open. Before that the CPU does all jobs.
  Status WaitForDevice() const {
    internal::Text error;
    return internal::ToStatus(rm_service_wait_for_device(handle_, error.Place()) == RM_SUCCESS, error);
  }

  // Cancels all running and waiting jobs of all clones; RocksDB does them itself. Later jobs are accepted, unless the
  // setting `paused` is true. DisableManualCompaction waits for a running job: call this before it.
  void CancelJobs() { rm_service_cancel_jobs(handle_, nullptr); }

  // Returns the work done so far through all clones, as JSON.
  std::string Stats() const { return internal::Text(rm_service_stats_json(handle_, nullptr)).Str(); }

  // Returns the metrics of all clones in Prometheus' text format.
  std::string MetricsPrometheus() const {
    return internal::Text(rm_service_metrics_prometheus(handle_, nullptr)).Str();
  }

  // Returns the last error or decline of any clone in one sentence, or "" if there was none.
  std::string LastError() const { return internal::Text(rm_service_last_error(handle_, nullptr)).Str(); }

  const char* Name() const override { return "Rockmill"; }

#if ROCKMILL_ROCKSDB_SINCE(9, 1)
  using ScheduleResponse = ROCKSDB_NAMESPACE::CompactionServiceScheduleResponse;

  ScheduleResponse Schedule(const JobInfo& info, const std::string& input) override {
    internal::Text id;
    if (!Offer(info, input, &id)) return ScheduleResponse(JobStatus::kUseLocal);
    return internal::WithoutExceptions([&] { return ScheduleResponse(id.Str(), JobStatus::kSuccess); },
                                       ScheduleResponse(JobStatus::kUseLocal));
  }

  JobStatus Wait(const std::string& job_id, std::string* result) override { return Run(job_id.c_str(), result); }
#else
  // RocksDB before 9.1 identifies a job only by its own number, and waits for it on the same thread.
  JobStatus StartV2(const JobInfo& info, const std::string& input) override {
    internal::Text id;
    if (!Offer(info, input, &id)) return JobStatus::kUseLocal;
    const auto keep = [&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      jobs_[{info.db_session_id, info.job_id}] = id.Str();
      return JobStatus::kSuccess;
    };
    return internal::WithoutExceptions(keep, JobStatus::kUseLocal);
  }

  JobStatus WaitForCompleteV2(const JobInfo& info, std::string* result) override {
    std::string id;
    const auto take = [&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto job = jobs_.find({info.db_session_id, info.job_id});
      if (job == jobs_.end()) return false;
      id = std::move(job->second);
      jobs_.erase(job);
      return true;
    };
    return internal::WithoutExceptions(take, false) ? Run(id.c_str(), result) : JobStatus::kUseLocal;
  }
#endif

#if ROCKMILL_ROCKSDB_SINCE(9, 11)
  void CancelAwaitingJobs() override {
    if (attachment_ != nullptr) attachment_->DatabaseCloses();
    rm_service_cancel_awaiting_jobs(handle_, nullptr);
  }
#endif

#if ROCKMILL_ROCKSDB_SINCE(9, 6)
  void OnInstallation(const std::string& job_id, JobStatus status) override {
    rm_service_on_installation(handle_, job_id.c_str(), internal::ToStatus(status), nullptr);
  }
#endif

 private:
  std::shared_ptr<Service> AttachObjects(ROCKSDB_NAMESPACE::DBOptions* options, const internal::NamedObjects& families,
                                         std::shared_ptr<const internal::Objects> others, Status* status) const {
    Status ignored;
    Status& attached = status != nullptr ? *status : ignored;
    const auto attachment = std::make_shared<internal::Attachment>();
    bool has_several_paths = options->db_paths.size() > 1, has_foreign_objects = false;
    std::vector<std::string> paths;
    for (const auto& own : options->db_paths) paths.push_back(own.path);
    attachment->SetPaths(std::move(paths));
    for (const auto& family : families) {
      attachment->Add(family.first, family.second);
      has_several_paths |= family.second->paths.size() > 1;
      has_foreign_objects |= family.second->has_foreign_objects;
    }
    attachment->AddOthers(std::move(others));
    attached = internal::CheckAttachable(*options, has_several_paths, has_foreign_objects);
    if (!attached.ok()) return nullptr;
    internal::Text error;
    rm_service* clone = rm_service_clone(handle_, error.Place());
    attached = internal::ToStatus(clone != nullptr, error);
    if (clone == nullptr) return nullptr;
    auto service = std::make_shared<Service>(clone, log_, attachment);
    internal::RemoveListener(options);
    options->listeners.push_back(std::make_shared<internal::Listener>(attachment));
    options->compaction_service = service;
    return service;
  }

  bool Offer(const JobInfo& info, const std::string& input, internal::Text* id) {
    rm_job_info job = internal::ToJob(info);
    if (attachment_ != nullptr) {
      const auto find = [&] { return attachment_->ObjectsOf(info); };
      const auto* objects = internal::WithoutExceptions(find, static_cast<internal::JobObjects*>(nullptr));
      if (objects == nullptr) return false;
      job.picked_compression = objects->PickedCompression();
      job.plugins = objects->Plugins();  // The library releases them.
    }
    return rm_service_schedule(handle_, &job, input.data(), input.size(), id->Place(), nullptr) == RM_SUCCESS;
  }

  // RocksDB treats every answer except success and use-local as fatal.
  JobStatus Run(const char* job_id, std::string* result) {
    rm_result answer = {};
    answer.struct_size = sizeof(answer);
    if (rm_service_wait(handle_, job_id, &answer, nullptr) != RM_SUCCESS) return JobStatus::kUseLocal;
    const internal::Text message(answer.message);
    const auto take = [&] {
      result->assign(answer.message, answer.message_size);
      return JobStatus::kSuccess;
    };
    const JobStatus taken = internal::WithoutExceptions(take, JobStatus::kUseLocal);
    // RocksDB does not report files that it never received.
    if (taken == JobStatus::kUseLocal) rm_service_on_installation(handle_, job_id, RM_USE_LOCAL, nullptr);
    return taken;
  }

#if !ROCKMILL_ROCKSDB_SINCE(9, 1)
  std::mutex mutex_;
  std::map<std::pair<std::string, uint64_t>, std::string> jobs_;
#endif
  rm_service* const handle_;
  const std::shared_ptr<const LogFunction> log_;
  // Null unless the service was made by Attach.
  const std::shared_ptr<internal::Attachment> attachment_;
};

// Opens a service. docs/guide/settings.md lists the settings. Null if *status is not OK: *status then names the invalid
// setting, or the versions that do not fit. `log` receives messages up to `log_level`, and may be empty.
inline std::shared_ptr<Service> NewCompactionService(const std::map<std::string, std::string>& settings,
                                                     ROCKSDB_NAMESPACE::Status* status = nullptr,
                                                     LogFunction log = nullptr, LogLevel log_level = LogLevel::kInfo) {
  using ROCKSDB_NAMESPACE::Status;
  Status ignored;
  Status& opened = status != nullptr ? *status : ignored;
  rm_service* service = nullptr;
  std::shared_ptr<const LogFunction> function;
  if (log) function = std::make_shared<const LogFunction>(std::move(log));
  if (rm_abi_version() == RM_ABI_VERSION) {
    opened = internal::WithSettings(settings, [&](const char* text, char** error) {
      rm_service_options options = {};
      options.struct_size = sizeof(options);
      options.settings = text;
      if (function != nullptr) {
        options.log = internal::Log;
        options.log_state = const_cast<LogFunction*>(function.get());
        options.log_level = static_cast<int>(log_level);
      }
      service = rm_service_open_with(&options, error);
      return service != nullptr;
    });
  } else {
    opened = Status::NotSupported("Rockmill", "rockmill.h has ABI " + std::to_string(RM_ABI_VERSION) +
                                                  " and the library has ABI " + std::to_string(rm_abi_version()) +
                                                  "; install both from one version");
  }
  return service != nullptr ? std::make_shared<Service>(service, std::move(function)) : nullptr;
}

namespace internal {

// Returns the service of these settings. All of a program's databases share its threads, memory and devices. It stays open
// as long as a database uses it.
inline std::shared_ptr<Service> SharedService(const std::map<std::string, std::string>& settings,
                                              ROCKSDB_NAMESPACE::Status* status) {
  static std::mutex mutex;
  static std::map<std::map<std::string, std::string>, std::weak_ptr<Service>> services;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& known = services[settings];
  auto service = known.lock();
  if (service == nullptr) known = service = NewCompactionService(settings, status);
  return service;
}

}  // namespace internal

// Sets a service on options before a database is opened with them. The service does the database's compactions, and calls
// the merge operator, the compaction filter and the collectors of table properties of these options.
// docs/guide/plugins.md has the rules. Calls with the same settings share threads, memory and devices.
//
// The options are those of the default column family; say Families::kAll if all column families have them. Returns the
// service, or null if *status is not OK: then the options are as they were.
//
// It adds a listener to the options, which copies of the options share. Call Attach once for each database: when one that
// shares options closes, running jobs of the others are left to RocksDB.
inline std::shared_ptr<Service> Attach(ROCKSDB_NAMESPACE::Options* options,
                                       const std::map<std::string, std::string>& settings,
                                       ROCKSDB_NAMESPACE::Status* status = nullptr,
                                       Families families = Families::kDefault) {
  const auto service = internal::SharedService(settings, status);
  return service != nullptr ? service->Attach(options, status, families) : nullptr;
}

// The same for a database with several column families.
inline std::shared_ptr<Service> Attach(ROCKSDB_NAMESPACE::DBOptions* options,
                                       const std::vector<ROCKSDB_NAMESPACE::ColumnFamilyDescriptor>* families,
                                       const std::map<std::string, std::string>& settings,
                                       ROCKSDB_NAMESPACE::Status* status = nullptr) {
  const auto service = internal::SharedService(settings, status);
  return service != nullptr ? service->Attach(options, families, status) : nullptr;
}

namespace internal {

// Adds what the options of a transaction database tell to settings.
inline ROCKSDB_NAMESPACE::Status WithTransactions(const ROCKSDB_NAMESPACE::TransactionDBOptions& options,
                                                  std::map<std::string, std::string>* settings) {
  if (options.write_policy != ROCKSDB_NAMESPACE::WRITE_COMMITTED) {
    return ROCKSDB_NAMESPACE::Status::NotSupported("Rockmill",
                                                   "the write policy is not WriteCommitted: files have uncommitted data");
  }
  settings->emplace("write_committed", "true");
  return ROCKSDB_NAMESPACE::Status::OK();
}

}  // namespace internal

// The same for a transaction database.
inline std::shared_ptr<Service> Attach(ROCKSDB_NAMESPACE::Options* options,
                                       const ROCKSDB_NAMESPACE::TransactionDBOptions& transactions,
                                       std::map<std::string, std::string> settings,
                                       ROCKSDB_NAMESPACE::Status* status = nullptr,
                                       Families families = Families::kDefault) {
  const auto told = internal::WithTransactions(transactions, &settings);
  if (status != nullptr) *status = told;
  return told.ok() ? Attach(options, settings, status, families) : nullptr;
}

inline std::shared_ptr<Service> Attach(ROCKSDB_NAMESPACE::DBOptions* options,
                                       const std::vector<ROCKSDB_NAMESPACE::ColumnFamilyDescriptor>* families,
                                       const ROCKSDB_NAMESPACE::TransactionDBOptions& transactions,
                                       std::map<std::string, std::string> settings,
                                       ROCKSDB_NAMESPACE::Status* status = nullptr) {
  const auto told = internal::WithTransactions(transactions, &settings);
  if (status != nullptr) *status = told;
  return told.ok() ? Attach(options, families, settings, status) : nullptr;
}

// Returns a database's running jobs to RocksDB, and leaves its later ones to it. RocksDB before 9.11 does not tell a service
// that a database closes, and waits for the jobs: call this before the database is closed. The status is that of
// DB::GetDbSessionId, or an error of the library.
inline ROCKSDB_NAMESPACE::Status DatabaseCloses(ROCKSDB_NAMESPACE::DB* db) {
  std::string session;
  const auto known = db->GetDbSessionId(session);
  if (!known.ok()) return known;
  internal::Text error;
  return internal::ToStatus(rm_database_closes(session.c_str(), error.Place()) == RM_SUCCESS, error);
}

}  // namespace rockmill
