// Threads of the host in place of tiles: gets, puts and deletes through a view with device "cpu", against a model and
// against RocksDB. Prints a line for each part that has passed.
//
//   kv FOLDER SEED
#include <rockmill/gpukv.cuh>
#include <rockmill/gpukv_rocksdb_c.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

const rockmill::thread tile;

void check(bool is_true, const std::string& what) {
  if (is_true) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

void check(char* error) {
  if (error != nullptr) check(false, error);
}

using Model = std::map<std::string, std::string>;

// A database that is open, and what is in it.
struct Database {
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_readoptions_t* read = rocksdb_readoptions_create();
  rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
  rocksdb_t* db;
  rocksdb_column_family_handle_t* family;
  rm_rocksdb_store of;
  std::string path;

  explicit Database(const std::string& folder) : path(folder) {
    char* error = nullptr;
    rocksdb_options_set_create_if_missing(options, 1);
    db = rocksdb_open(options, path.c_str(), &error);
    check(error);
    family = rocksdb_get_default_column_family_handle(db);
    of = {db, family, read, write};
  }
  ~Database() {
    rocksdb_column_family_handle_destroy(family);
    rocksdb_close(db);
    rocksdb_options_destroy(options);
    rocksdb_readoptions_destroy(read);
    rocksdb_writeoptions_destroy(write);
  }

  void put(const std::string& key, const std::string& value) {
    char* error = nullptr;
    rocksdb_put(db, write, key.data(), key.size(), value.data(), value.size(), &error);
    check(error);
  }
  void delete_range(const std::string& from, const std::string& to) {
    char* error = nullptr;
    rocksdb_delete_range_cf(db, write, family, from.data(), from.size(), to.data(), to.size(), &error);
    check(error);
  }
  Model all() const {
    Model model;
    rocksdb_iterator_t* iterator = rocksdb_create_iterator(db, read);
    for (rocksdb_iter_seek_to_first(iterator); rocksdb_iter_valid(iterator); rocksdb_iter_next(iterator)) {
      size_t key_len = 0, len = 0;
      const char* key = rocksdb_iter_key(iterator, &key_len);
      const char* value = rocksdb_iter_value(iterator, &len);
      model[std::string(key, key_len)] = std::string(value, len);
    }
    rocksdb_iter_destroy(iterator);
    return model;
  }
};

rm_view* open(const Database& database, const rm_store* store, uint32_t mailboxes, uint32_t mailbox_bytes,
              uint32_t timeout_ms) {
  rm_view_options options{};
  options.struct_size = sizeof options;
  options.path = database.path.c_str();
  options.device = "cpu";
  options.store = store;
  options.threads = 3;
  options.mailboxes = mailboxes;
  options.mailbox_bytes = mailbox_bytes;
  options.timeout_ms = timeout_ms;
  char* error = nullptr;
  rm_view* view = rm_view_open(&options, &error);
  check(error);
  return view;
}

void close(rm_view* view) {
  char* error = nullptr;
  rm_view_close(view, &error);
  check(error);
}

void refresh(rm_view* view) {
  char* error = nullptr;
  check(rm_view_refresh(view, &error) == RM_SUCCESS, error == nullptr ? "no error" : error);
}

std::string random_bytes(std::mt19937_64& random, size_t len) {
  std::string bytes(len, 0);
  for (char& byte : bytes) byte = char(random());
  return bytes;
}

// A get with a buffer that may be too small.
void check_get(rockmill::kv& kv, std::mt19937_64& random, const Model& model, const std::string& key) {
  const auto expected = model.find(key);
  std::vector<char> buffer(random() % 4 == 0 ? random() % 8 : 4000);
  rockmill::result got;
  if (random() % 4 == 0) {
    const rockmill::ticket ticket = kv.get_latest(tile, key.data(), key.size(), buffer.data(), buffer.size());
    got = kv.wait(tile, ticket);
  } else {
    got = kv.get(tile, key.data(), key.size(), buffer.data(), buffer.size());
  }
  const std::string what = "get: status " + std::to_string(got.status) + ", length " + std::to_string(got.len);
  if (expected == model.end()) {
    check(got.status == rockmill::status::not_found, what + " of a key that is not there");
    return;
  }
  check(got.len == expected->second.size(), what + " but " + std::to_string(expected->second.size()));
  const bool fits = got.len <= buffer.size();
  check(got.status == (fits ? rockmill::status::found : rockmill::status::too_small), what);
  if (fits) check(expected->second.compare(0, got.len, buffer.data(), got.len) == 0, what + " and another value");
  const rockmill::value found = kv.find(tile, key.data(), key.size());
  if (found.status == rockmill::status::found) {
    check(expected->second == std::string(reinterpret_cast<const char*>(found.data), found.len), "find: another value");
  } else {
    check(found.status == rockmill::status::ask, "find: status " + std::to_string(found.status));
  }
}

// What a thread does with keys that are its own.
void work(const rockmill::kv& given, uint64_t seed, const std::vector<std::string>& keys, Model& model, int steps) {
  std::mt19937_64 random(seed);
  rockmill::kv kv = given;
  std::vector<rockmill::ticket> tickets;
  const auto wait_for_all = [&] {
    for (const rockmill::ticket& ticket : tickets) {
      const rockmill::result result = kv.wait(tile, ticket);
      check(result.status == rockmill::status::written, "put: status " + std::to_string(result.status));
    }
    tickets.clear();
  };
  for (int step = 0; step < steps; ++step) {
    const std::string& key = keys[random() % keys.size()];
    if (random() % 2 == 0) {
      // A get does not wait for a mailbox while there are tickets.
      wait_for_all();
      check_get(kv, random, model, key);
      continue;
    }
    const bool is_delete = random() % 3 == 0;
    const std::string value = random_bytes(random, random() % 8 == 0 ? random() % 3000 : random() % 100);
    const auto post = [&] {
      return is_delete ? kv.del(tile, key.data(), key.size())
                       : kv.put(tile, key.data(), key.size(), value.data(), value.size());
    };
    rockmill::ticket ticket = post();
    if (ticket.status == rockmill::status::busy) {
      check(!tickets.empty(), "busy without a ticket");
      wait_for_all();
      ticket = post();
    }
    tickets.push_back(ticket);
    if (is_delete) model.erase(key);
    else model[key] = value;
    if (random() % 4 == 0) wait_for_all();
  }
  wait_for_all();
}

void random_operations(Database& database, uint64_t seed, uint32_t mailboxes, uint32_t mailbox_bytes) {
  constexpr int THREADS = 8, KEYS = 60, STEPS = 1500;
  std::mt19937_64 random(seed);
  std::vector<std::vector<std::string>> keys(THREADS);
  std::vector<Model> models(THREADS);
  for (int i = 0; i < THREADS; ++i) {
    for (int k = 0; k < KEYS; ++k) {
      std::string key = std::string(1, char('a' + i)) + random_bytes(random, random() % 10 == 0 ? 200 : random() % 20);
      if (k < KEYS / 2) {
        const std::string value = random_bytes(random, random() % 50);
        database.put(key, value);
        models[i][key] = value;
      }
      keys[i].push_back(std::move(key));
    }
  }
  // RocksDB is asked for keys in the range of a tombstone.
  const std::string from = "c", to = "d";
  database.delete_range(from, to);
  models['c' - 'a'].clear();
  const rm_store store = rm_store_of_rocksdb(&database.of);
  rm_view* view = open(database, &store, mailboxes, mailbox_bytes, 60'000);
  {
    rockmill::hold hold(view);
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; ++i) {
      threads.emplace_back([&, i] { work(hold.kv(), seed * 100 + i, keys[i], models[i], STEPS); });
    }
    for (std::thread& thread : threads) thread.join();
    // The kernels' version stays what it was, and so do their puts.
    refresh(view);
    rockmill::kv kv = hold.kv();
    for (int i = 0; i < THREADS; ++i) check_get(kv, random, models[i], keys[i][0]);
  }
  Model all;
  for (Model& model : models) all.insert(model.begin(), model.end());
  // Nobody holds the view now, so all of them are in the table that the refresh makes.
  refresh(view);
  {
    rockmill::hold hold(view);
    for (const auto& [key, value] : all) {
      const bool is_asked = key >= from && key < to;
      const rockmill::value found = hold.kv().find(tile, key.data(), key.size());
      check(found.status == (is_asked ? rockmill::status::ask : rockmill::status::found), "find after a refresh");
    }
  }
  close(view);
  check(database.all() == all, "the database is not what was put");
}

// A store that answers when it is told to.
struct Slow {
  std::atomic<bool> may_answer{false};
  std::atomic<int> waiting{0};

  static void get(void* state, const rm_bytes*, size_t n, rm_tell_value tell, void* context) {
    Slow& self = *static_cast<Slow*>(state);
    ++self.waiting;
    while (!self.may_answer) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (size_t i = 0; i < n; ++i) tell(context, i, RM_KV_FOUND, "late", 4);
    --self.waiting;
  }
};

rm_store store_of(Slow& slow) {
  rm_store store{};
  store.struct_size = sizeof store;
  store.state = &slow;
  store.get = Slow::get;
  return store;
}

rockmill::result get_latest(rockmill::kv& kv, char* buffer) {
  return kv.wait(tile, kv.get_latest(tile, "key", 3, buffer, 8));
}

void late_answers(const Database& database) {
  Slow slow;
  const rm_store store = store_of(slow);
  // 16 mailboxes, of which one after another is left behind.
  rm_view* view = open(database, &store, 16, 64, 50);
  {
    rockmill::hold hold(view);
    rockmill::kv kv = hold.kv();
    char buffer[8] = "own";
    for (int i = 0; i < 16; ++i) {
      check(get_latest(kv, buffer).status == rockmill::status::timed_out, "a late answer came in time");
    }
    check(std::string(buffer) == "own", "a late answer came to the caller's memory");
    check(get_latest(kv, buffer).status == rockmill::status::timed_out, "there was a mailbox");
    const auto put = kv.wait(tile, kv.put(tile, "key", 3, "v", 1));
    check(put.status == rockmill::status::timed_out, "there was a mailbox for a put");
    slow.may_answer = true;
    rockmill::result got{};
    for (int i = 0; i < 200 && got.status != rockmill::status::found; ++i) got = get_latest(kv, buffer);
    check(got.status == rockmill::status::found && got.len == 4, "no mailbox came back");
    // All of them are back: each ticket has one of its own.
    std::vector<rockmill::ticket> tickets;
    for (int i = 0; i < 16; ++i) tickets.push_back(kv.get_latest(tile, "key", 3, buffer, 8));
    const auto more = kv.get_latest(tile, "key", 3, buffer, 8);
    check(more.status == rockmill::status::busy, "a ticket of more than there are mailboxes");
    for (const auto& ticket : tickets) check(kv.wait(tile, ticket).status == rockmill::status::found, "no answer");
    const auto written = kv.wait(tile, kv.put(tile, "key", 3, "v", 1));
    check(written.status == rockmill::status::read_only, "a put without a function for it");
  }
  close(view);
}

void closing(const Database& database) {
  Slow slow;
  const rm_store store = store_of(slow);
  rm_view* view = open(database, &store, 16, 64, 600'000);
  std::thread closer;
  {
    rockmill::hold hold(view);
    std::vector<std::thread> threads;
    for (int i = 0; i < 24; ++i) {
      threads.emplace_back([kv = hold.kv()]() mutable {
        char buffer[8];
        check(get_latest(kv, buffer).status == rockmill::status::aborted, "not aborted");
      });
    }
    while (slow.waiting == 0) std::this_thread::yield();
    closer = std::thread([&] { close(view); });
    // They are done although the store has answered nobody.
    for (std::thread& thread : threads) thread.join();
    slow.may_answer = true;
  }
  closer.join();
}

void wrong_calls(const Database& database) {
  rm_view* view = open(database, nullptr, 0, 0, 0);
  char* error = nullptr;
  char kv_bytes[1024];
  uint64_t number = 0;
  check(rm_view_hold(view, nullptr, kv_bytes, sizeof kv_bytes, 1, &number, &error) == RM_INVALID, "another layout");
  check(std::string(error).find("compile") != std::string::npos, error);
  rm_free(error);
  {
    rockmill::hold hold(view);
    rockmill::kv kv = hold.kv();
    char buffer[8];
    check(kv.wait(tile, kv.put(tile, "k", 1, "v", 1)).status == rockmill::status::read_only, "a put without a store");
    check(kv.get(tile, "", 0, buffer, 8).status == rockmill::status::not_found, "an empty key that is not there");
  }
  check(rm_view_release(view, 77, &error) == RM_INVALID, "no such hold");
  rm_free(error);
  char* stats = rm_view_stats_json(view, &error);
  check(error);
  check(std::string(stats).find("\"keys\"") != std::string::npos, stats);
  rm_free(stats);
  close(view);
  check(rm_view_close(view, &error) == RM_INVALID, "closed twice");
  rm_free(error);
  try {
    rockmill::hold hold(view);
    check(false, "held after close");
  } catch (const std::runtime_error&) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  check(argc == 3, "usage: kv FOLDER SEED");
  const std::string folder = argv[1];
  const uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  const uint32_t sizes[][2] = {{4096, 4096}, {16, 64}, {64, 256}};
  for (int i = 0; i < 3; ++i) {
    Database database(folder + "/random" + std::to_string(i));
    random_operations(database, seed + i, sizes[i][0], sizes[i][1]);
    std::printf("%u mailboxes of %u bytes\n", sizes[i][0], sizes[i][1]);
  }
  Database database(folder + "/small");
  late_answers(database);
  std::printf("late answers\n");
  closing(database);
  std::printf("closing\n");
  wrong_calls(database);
  std::printf("wrong calls\n");
}
