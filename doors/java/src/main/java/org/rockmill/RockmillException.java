package org.rockmill;

/** Says in one sentence why Rockmill cannot be used here. The program's databases are as they were. */
public final class RockmillException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /**
   * Makes one.
   *
   * @param message the sentence
   */
  public RockmillException(String message) {
    super(message);
  }

  RockmillException(String message, Throwable cause) {
    super(message, cause);
  }
}
