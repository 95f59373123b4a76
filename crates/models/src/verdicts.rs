//! Verdicts: whether running models together by a plan kept every bit, on a kind of device.
//!
//! A plan is tried once, beside each of its models alone. What came of it is kept, so that it is
//! tried once on this machine and not once in every process.

use std::fs;
use std::path::PathBuf;

use holdfast_graph::Digest;
use serde::{Deserialize, Serialize};

use crate::blobs::{sync_folder, write_atomically};
use crate::error::StoreError;
use crate::store::Store;

/// What came of trying a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// Every answer had the bits that it has alone.
    Holds,
    /// Some had not.
    Differs {
        /// Which, in words.
        what: String,
        /// The models that they are of; all, if there are none here.
        #[serde(default)]
        models: Vec<Digest>,
    },
}

/// A verdict as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    plan: String,
    kind: String,
    #[serde(flatten)]
    verdict: Verdict,
}

impl Store {
    pub(crate) fn verdicts_folder(&self) -> PathBuf {
        self.home().join("verdicts")
    }

    /// What came of trying a plan on a kind of device. One that is damaged counts as not there,
    /// because the plan can be tried again.
    pub fn verdict(&self, plan: &Digest, kind: &str) -> Option<Verdict> {
        let bytes = fs::read(self.verdict_path(plan, kind)).ok()?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        (kept.plan == plan.to_string() && kept.kind == kind).then_some(kept.verdict)
    }

    /// Keeps what came of it.
    pub fn put_verdict(
        &self,
        plan: &Digest,
        kind: &str,
        verdict: &Verdict,
    ) -> Result<(), StoreError> {
        let kept = Kept { plan: plan.to_string(), kind: kind.to_owned(), verdict: verdict.clone() };
        let text = serde_json::to_vec_pretty(&kept).expect("a verdict has only strings");
        write_atomically(&self.verdict_path(plan, kind), &text)?;
        sync_folder(&self.verdicts_folder())
    }

    fn verdict_path(&self, plan: &Digest, kind: &str) -> PathBuf {
        let key = Digest::of(format!("{plan} {kind}").as_bytes());
        self.verdicts_folder().join(format!("{key}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_of_one_plan_on_one_kind_of_device() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (plan, other) = (Digest::of(b"plan"), Digest::of(b"other"));
        let models = vec![Digest::of(b"a")];
        let differs = Verdict::Differs { what: "`y` of model `a`".to_owned(), models };
        store.put_verdict(&plan, "cpu", &Verdict::Holds).unwrap();
        store.put_verdict(&plan, "wasm", &differs).unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.verdict(&plan, "cpu"), Some(Verdict::Holds));
        assert_eq!(store.verdict(&plan, "wasm"), Some(differs));
        assert_eq!(store.verdict(&plan, "webgpu"), None);
        assert_eq!(store.verdict(&other, "cpu"), None);
    }

    #[test]
    fn a_damaged_verdict_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let plan = Digest::of(b"plan");
        store.put_verdict(&plan, "cpu", &Verdict::Holds).unwrap();
        fs::write(store.verdict_path(&plan, "cpu"), "{").unwrap();
        assert_eq!(store.verdict(&plan, "cpu"), None);
    }
}
