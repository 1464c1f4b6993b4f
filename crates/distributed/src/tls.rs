//! Certificates of coordinator and workers.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// Names of the files in the folder.
const AUTHORITY: &str = "ca.pem";
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";

/// Maximum time of a handshake. A peer that does not finish it holds a descriptor.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The certificate of this process, and the authority that has signed those of all others. Each side checks the other.
/// Every process with a certificate of this authority may connect.
#[derive(Clone)]
pub struct Tls {
    authority: Certificate,
    identity: Identity,
}

/// A file of the folder cannot be read.
#[derive(Debug)]
pub struct TlsError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; the folder of --tls must contain {AUTHORITY}, {CERTIFICATE} and {KEY}",
            self.path.display(),
            self.error
        )
    }
}

impl std::error::Error for TlsError {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads `ca.pem`, `cert.pem` and `key.pem`.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn read(folder: &Path) -> Result<Self, TlsError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|error| TlsError { path, error })
        };
        Ok(Self {
            authority: Certificate::from_pem(read(AUTHORITY)?),
            identity: Identity::from_pem(read(CERTIFICATE)?, read(KEY)?),
        })
    }

    pub(crate) fn server(&self) -> ServerTlsConfig {
        let config = ServerTlsConfig::new().identity(self.identity.clone());
        let config = config.client_ca_root(self.authority.clone());
        config.timeout(HANDSHAKE)
    }

    /// The peer's certificate must have this name.
    pub(crate) fn client(&self, name: &str) -> ClientTlsConfig {
        let config = ClientTlsConfig::new().ca_certificate(self.authority.clone());
        let config = config.identity(self.identity.clone());
        config.domain_name(name).timeout(HANDSHAKE)
    }
}
