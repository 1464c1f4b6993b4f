/* glibc 2.35 has a new hypot, which differs from the old one only in how it sets errno. The old one is all that would
   keep the command from systems with glibc 2.34. */
__asm__(".symver old_hypot, hypot@GLIBC_2.2.5");
__asm__(".symver old_hypotf, hypotf@GLIBC_2.2.5");

double old_hypot(double x, double y);
float old_hypotf(float x, float y);

double __wrap_hypot(double x, double y) { return old_hypot(x, y); }
float __wrap_hypotf(float x, float y) { return old_hypotf(x, y); }
