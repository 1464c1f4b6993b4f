// Memory that outlives a process, in a file of a folder.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

// The state of type T in the file "shared", zeros at first.
template <class T>
T* MapShared(const std::string& folder) {
  const std::string path = folder + "/shared";
  std::ofstream(path, std::ios::app).close();
  FILE* file = truncate(path.c_str(), sizeof(T)) == 0 ? std::fopen(path.c_str(), "r+") : nullptr;
  void* memory = MAP_FAILED;
  if (file != nullptr) memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  if (memory == MAP_FAILED) {
    std::perror(path.c_str());
    std::_Exit(1);
  }
  std::fclose(file);
  return static_cast<T*>(memory);
}
