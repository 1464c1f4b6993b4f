/** Rockmill's counters in Micrometer. */
@NullMarked
package org.rockmill.micrometer;

import org.jspecify.annotations.NullMarked;
