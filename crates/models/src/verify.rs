//! Verification: every blob is what its name says, every model is complete and readable.

use std::collections::HashMap;

use holdfast_graph::Digest;

use crate::error::StoreError;
use crate::store::Store;

/// What a verification found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Models that were looked at.
    pub models: usize,
    /// Blobs that were hashed.
    pub blobs: usize,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong: the model, and the problem.
    pub problems: Vec<(String, StoreError)>,
}

impl Store {
    /// Checks all models, or just one.
    pub fn verify(&self, name: Option<&str>) -> Result<VerifyReport, StoreError> {
        let names = match name {
            Some(name) => vec![name.to_owned()],
            None => self.names()?,
        };
        let mut report = VerifyReport::default();
        let mut checked: HashMap<Digest, bool> = HashMap::new();
        for name in names {
            let manifest = match self.model(&name) {
                Ok(manifest) => manifest,
                Err(error @ StoreError::NoSuchModel { .. }) => return Err(error),
                Err(error) => {
                    report.problems.push((name, error));
                    continue;
                }
            };
            report.models += 1;
            let mut whole = true;
            for digest in manifest.blobs() {
                if let Some(fine) = checked.get(&digest) {
                    whole &= *fine;
                    continue;
                }
                let result = self.blob(&digest);
                checked.insert(digest, result.is_ok());
                match result {
                    Ok(bytes) => {
                        report.blobs += 1;
                        report.bytes += bytes.len() as u64;
                    }
                    Err(error) => {
                        whole = false;
                        report.problems.push((name.clone(), error));
                    }
                }
            }
            // A graph whose blobs are damaged was reported already.
            for component in manifest.components.iter().filter(|_| whole) {
                if let Err(error) = self.open_graph(&component.graph) {
                    report.problems.push((name.clone(), error));
                }
            }
        }
        Ok(report)
    }
}
