/* The bzip2 of Rust's crates requires the program to define this. */
#include <stdlib.h>

void bz_internal_error(int code) {
  (void)code;
  abort();
}
