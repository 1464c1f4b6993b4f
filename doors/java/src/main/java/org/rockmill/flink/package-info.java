/** Rockmill for Flink 2. */
@NullMarked
package org.rockmill.flink;

import org.jspecify.annotations.NullMarked;
