/** Rockmill for Kafka Streams. */
@NullMarked
package org.rockmill.kafka;

import org.jspecify.annotations.NullMarked;
