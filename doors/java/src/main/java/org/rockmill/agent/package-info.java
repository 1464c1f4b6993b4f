/** The agent, which attaches Rockmill to databases of programs that do not know it. */
@NullMarked
package org.rockmill.agent;

import org.jspecify.annotations.NullMarked;
