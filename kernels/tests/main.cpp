// Runs the tests of all stages, or of those that are named by stage or by file: `merge_runs` or `merge`. Each stage
// must have a test.

#include <algorithm>
#include <cstdio>

#include "../stage_list.hpp"
#include "test.hpp"

#define ROCKMILL_NAME_OF(name) #name,
static const char* const STAGES[] = {ROCKMILL_STAGES(ROCKMILL_NAME_OF)};

static bool is_named(const Test& test, const std::vector<std::string>& names) {
  return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
           return name == test.stage || name + ".cpp" == test.file;
         });
}

int main(int argc, char** argv) {
  const std::vector<std::string> names(argv + 1, argv + argc);
  u32 passed = 0, failed = 0;
  for (const std::string stage : STAGES) {
    const auto is_of = [&](const Test& test) { return test.stage == stage; };
    if (std::any_of(all_tests().begin(), all_tests().end(), is_of)) continue;
    ++failed;
    std::printf("the stage %s has no test\n", stage.c_str());
  }
  for (const Test& test : all_tests()) {
    if (!is_named(test, names)) continue;
    try {
      test.run();
      ++passed;
    } catch (const Failed& caught) {
      ++failed;
      std::printf("%s %s\n  kernels/tests/%s\n", test.stage, test.fact, caught.why.c_str());
    }
  }
  std::printf("%s: %u tests passed, %u failed\n", argv[0], passed, failed);
  return failed > 0 || passed == 0;
}
