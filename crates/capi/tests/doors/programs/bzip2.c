/* The bzip2 of Rust's crates leaves this to the program. */
#include <stdlib.h>

void bz_internal_error(int code) {
  (void)code;
  abort();
}
