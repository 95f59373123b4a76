//! Sessions of one thread, for when several programs run at once.
//!
//! Two programs on two cores are done sooner if each has a core than if each has two threads that
//! wait for each other (measured: by a fifth). Most models compute the same bits whatever their
//! threads, some do not, and an answer must not depend on what else is going on. So a session of
//! one thread is used only for inputs of shapes for which it was seen to give the same bits.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use ort::session::Session;

/// The sizes of a segment's inputs.
pub(crate) type Shapes = Vec<Vec<i64>>;

/// The sessions of one thread of a segment.
#[derive(Default)]
pub(crate) struct Narrow {
    /// Those that nobody uses. A program has one at a time, so there are never more than programs.
    idle: Mutex<Vec<Session>>,
    verdicts: Mutex<HashMap<Shapes, Verdict>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is being found out.
    Underway,
    /// One thread gives the same bits.
    Same,
    /// It does not.
    Differs,
}

/// What a program among others is to do.
pub(crate) enum Advice<'a> {
    /// Run with all threads.
    Wide,
    /// Run with one.
    Narrow,
    /// Run with all, and then with one to compare.
    Prove(Proof<'a>),
}

/// Shapes of which is remembered what came of them. Past this all are forgotten, and tried again.
const LIMIT: usize = 1024;

impl Narrow {
    pub(crate) fn advise(&self, shapes: &Shapes) -> Advice<'_> {
        let mut verdicts = self.verdicts();
        match verdicts.get(shapes) {
            Some(Verdict::Same) => Advice::Narrow,
            Some(Verdict::Underway | Verdict::Differs) => Advice::Wide,
            None => {
                if verdicts.len() >= LIMIT {
                    verdicts.retain(|_, verdict| *verdict == Verdict::Underway);
                }
                verdicts.insert(shapes.clone(), Verdict::Underway);
                Advice::Prove(Proof { narrow: self, shapes: shapes.clone(), same: None })
            }
        }
    }

    /// Works with a session that nobody else uses, which is made if there is none.
    pub(crate) fn with<T, E>(
        &self,
        make: impl FnOnce() -> Result<Session, E>,
        work: impl FnOnce(&mut Session) -> Result<T, E>,
    ) -> Result<T, E> {
        let idle = self.idle().pop();
        let mut session = idle.map_or_else(make, Ok)?;
        let result = work(&mut session);
        self.idle().push(session);
        result
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().expect("no code panics while holding this lock")
    }

    fn verdicts(&self) -> MutexGuard<'_, HashMap<Shapes, Verdict>> {
        self.verdicts.lock().expect("no code panics while holding this lock")
    }
}

/// A comparison that is under way. One that is not settled is forgotten, and made again.
pub(crate) struct Proof<'a> {
    narrow: &'a Narrow,
    shapes: Shapes,
    same: Option<bool>,
}

impl Proof<'_> {
    pub(crate) fn settle(mut self, same: bool) {
        self.same = Some(same);
    }
}

impl Drop for Proof<'_> {
    fn drop(&mut self) {
        let mut verdicts = self.narrow.verdicts();
        match self.same {
            Some(true) => verdicts.insert(self.shapes.clone(), Verdict::Same),
            Some(false) => verdicts.insert(self.shapes.clone(), Verdict::Differs),
            None => verdicts.remove(&self.shapes),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use holdfast_graph::Tensor;
    use holdfast_models::{ImportOptions, Store};

    use super::*;
    use crate::cpu::{CpuEngine, CpuOptions, Target};
    use crate::{Device, Program, Segment};

    fn advice(narrow: &Narrow, size: i64) -> &'static str {
        match narrow.advise(&vec![vec![size]]) {
            Advice::Wide => "wide",
            Advice::Narrow => "narrow",
            Advice::Prove(_) => "prove",
        }
    }

    fn prove(narrow: &Narrow, size: i64, same: bool) {
        match narrow.advise(&vec![vec![size]]) {
            Advice::Prove(proof) => {
                assert_eq!(advice(narrow, size), "wide", "one comparison at a time");
                proof.settle(same);
            }
            _ => panic!("nothing is known of {size} yet"),
        }
    }

    #[test]
    fn one_thread_is_used_only_where_it_gave_the_same_bits() {
        let narrow = Narrow::default();
        prove(&narrow, 1, true);
        prove(&narrow, 2, false);
        assert_eq!(advice(&narrow, 1), "narrow");
        assert_eq!(advice(&narrow, 2), "wide");
        assert_eq!(advice(&narrow, 3), "prove", "other sizes say nothing about these");
    }

    #[test]
    fn a_comparison_that_was_interrupted_is_made_again() {
        let narrow = Narrow::default();
        assert_eq!(advice(&narrow, 1), "prove");
        assert_eq!(advice(&narrow, 1), "prove");
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let narrow = Narrow::default();
        (0..LIMIT as i64 + 1).for_each(|size| prove(&narrow, size, true));
        assert_eq!(narrow.verdicts().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_program_among_others_has_one_thread_and_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bert.onnx");
        let model = holdfast_testkit::bert(&holdfast_testkit::Recipe::tiny(1)).unwrap();
        std::fs::write(&path, holdfast_graph::encode(&model)).unwrap();
        let store = Arc::new(Store::open(folder.path().join("home")).unwrap());
        let imported = store.import(&path, &ImportOptions::default(), &mut |_| ()).unwrap();
        let graph = imported.manifest.components[0].graph.clone();
        let options = CpuOptions { threads: 2, concurrency: 2, ..CpuOptions::default() };
        let engine = CpuEngine::new(store, options).unwrap();
        let lowered = engine.lower(&graph, Target::Cpu, &BTreeMap::new()).await.unwrap();
        let loaded = engine.load(Segment::new(lowered)).await.unwrap();
        let inputs: Vec<(String, Tensor)> = loaded
            .inputs
            .iter()
            .map(|input| (input.name.clone(), Tensor::from_slice(&[1, 4], &[1i64; 4]).unwrap()))
            .collect();
        let run = async |request: &str| {
            let outputs = loaded.outputs.iter().map(|output| output.name.clone());
            let program = Program::single(request, loaded.id, inputs.clone(), outputs);
            let outputs = engine.run(program).await.unwrap().outputs;
            outputs.into_iter().map(|output| output.tensor).collect::<Vec<_>>()
        };
        let session = engine.state().sessions[&loaded.id].clone();

        let alone = run("alone").await;
        assert!(session.narrow.verdicts().is_empty(), "nothing was compared");
        // Somebody else is at work.
        let _other = engine.shared.turns.clone().try_acquire_owned().unwrap();
        for request in ["proof", "first", "second"] {
            assert_eq!(run(request).await, alone);
        }
        let verdicts: Vec<Verdict> = session.narrow.verdicts().values().copied().collect();
        assert_eq!(verdicts, [Verdict::Same]);
        assert_eq!(session.narrow.idle().len(), 1, "one session serves them all");
    }
}
