/* Replacements for functions with which the command would not run on systems with glibc 2.34 (linker option --wrap). */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* The hypot of glibc 2.35 differs from the old one only in the way it sets errno. */
__asm__(".symver old_hypot, hypot@GLIBC_2.2.5");
__asm__(".symver old_hypotf, hypotf@GLIBC_2.2.5");

double old_hypot(double x, double y);
float old_hypotf(float x, float y);

double __wrap_hypot(double x, double y) { return old_hypot(x, y); }
float __wrap_hypotf(float x, float y) { return old_hypotf(x, y); }

/* Exists from glibc 2.36 on. C++'s std::random_device calls it. */
uint32_t __wrap_arc4random(void) {
  uint32_t drawn;
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) abort();
  return drawn;
}
