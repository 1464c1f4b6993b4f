/** Lets Rockmill do the compactions of databases that a program opens with RocksJava: {@link org.rockmill.Rockmill}. */
@NullMarked
package org.rockmill;

import org.jspecify.annotations.NullMarked;
