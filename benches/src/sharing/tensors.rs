//! H9: an operation of the tensor manager takes as long with a million tensors as with a thousand.
//!
//! A thousand tensors are in play, alone or among a million, spread evenly at random: the same work
//! in both, so that what differs is what the other tensors cost. Beside that, rows `.cold` choose
//! among all tensors each time. With a million, none of these is in the processor's caches, so
//! they are about how long memory takes to answer.
//!
//! New names, as `register` and eviction have them, are cold in any case.
//!
//! Operations are timed in batches of a thousand; names and tensors of a batch are made before the
//! clock starts. Both managers take turns, so that a noisy moment hits both.

use std::time::{Duration, Instant};

use anyhow::Result;
use holdfast_graph::{DataType, Tensor};
use holdfast_tensors::{
    Copied, Declaration, Limits, NewTensor, Place, Span, TensorId, TensorSharingManager,
};
use holdfast_testkit::Numbers;

use crate::record::{Goal, Record};
use crate::timing::median;

const FEW: usize = 1_000;
const MANY: usize = 1_000_000;
const BATCH: usize = 1_000;
const ROUNDS: usize = 101;
const TENSOR_BYTES: usize = 64;

pub(crate) fn run(record: &mut Record) -> Result<()> {
    let mut few = Full::new(FEW)?;
    let mut many = Full::new(MANY)?;
    for operation in OPERATIONS {
        let Operation { id, what, batch, chooses } = operation;
        let id = format!("H9.{id}");
        compare(record, &id, what, Goal::AtMost(2.0), [&mut few, &mut many], |full| {
            batch(full, Full::in_play)
        })?;
        if chooses {
            let (id, what) = (format!("{id}.cold"), format!("{what}, any of all"));
            compare(record, &id, &what, Goal::AtMost(2.0), [&mut few, &mut many], |full| {
                batch(full, Full::any)
            })?;
        }
    }
    Ok(())
}

fn compare(
    record: &mut Record,
    id: &str,
    what: &str,
    goal: Goal,
    [few, many]: [&mut Full; 2],
    mut batch: impl FnMut(&mut Full) -> Result<Duration>,
) -> Result<()> {
    let (mut of_few, mut of_many) = (Vec::new(), Vec::new());
    // The first batch of each warms up.
    batch(few)?;
    batch(many)?;
    for _ in 0..ROUNDS {
        of_few.push(batch(few)?);
        of_many.push(batch(many)?);
    }
    let nanoseconds = |times: &mut [Duration]| median(times).as_nanos() as f64 / BATCH as f64;
    let (few, many) = (nanoseconds(&mut of_few), nanoseconds(&mut of_many));
    let peer = format!("{few:.0} ns with {FEW} tensors, {many:.0} ns with {MANY}");
    let what = format!("{what}: {MANY} tensors / {FEW} ({few:.0} → {many:.0} ns)");
    record.add(id, &what, many / few, "×", &peer, goal);
    Ok(())
}

/// Chooses the tensors of a batch.
type Choose = fn(&mut Full) -> Vec<(String, TensorId)>;

/// One kind of operation, and how a batch of it is timed.
struct Operation {
    id: &'static str,
    what: &'static str,
    batch: fn(&mut Full, Choose) -> Result<Duration>,
    /// Whether it works on tensors that are there. Otherwise it makes new ones.
    chooses: bool,
}

#[rustfmt::skip]
const OPERATIONS: [Operation; 12] = [
    Operation { id: "register", what: "register", batch: Full::register, chooses: false },
    Operation { id: "get", what: "get", batch: Full::get, chooses: true },
    Operation { id: "acquire", what: "acquire + release", batch: Full::acquire, chooses: true },
    Operation { id: "view", what: "create view", batch: Full::view, chooses: true },
    Operation { id: "pin", what: "pin + unpin", batch: Full::pin, chooses: true },
    Operation { id: "declare", what: "declare", batch: Full::declare, chooses: false },
    Operation { id: "share", what: "share with a model", batch: Full::share, chooses: true },
    Operation { id: "copy", what: "copy to the host", batch: Full::copy, chooses: true },
    Operation { id: "free", what: "free", batch: Full::free, chooses: false },
    Operation { id: "can_be_freed", what: "can be freed", batch: Full::can_be_freed, chooses: true },
    Operation { id: "release_model", what: "release all of a model, each", batch: Full::release_model, chooses: true },
    Operation { id: "evict", what: "register with eviction", batch: Full::evict, chooses: false },
];

/// A manager that is as full as it is to be, and what is in it.
struct Full {
    manager: TensorSharingManager,
    tensors: Vec<(String, TensorId)>,
    in_play: Vec<(String, TensorId)>,
    numbers: Numbers,
    made: usize,
}

impl Full {
    fn new(count: usize) -> Result<Full> {
        // Room for one batch more, which `register` and `view` take back.
        let limits = Limits {
            budget_bytes: ((count + BATCH) * TENSOR_BYTES) as u64,
            max_entries: count + 2 * BATCH,
            max_age: None,
        };
        let numbers = Numbers::labelled(9, "tensors to look at");
        let manager = TensorSharingManager::new(limits);
        let mut full = Full { manager, tensors: Vec::new(), in_play: Vec::new(), numbers, made: 0 };
        for _ in 0..count {
            let (name, new) = full.fresh()?;
            let id = full.manager.register(name.as_str(), new)?;
            full.tensors.push((name, id));
        }
        Ok(full)
    }

    fn fresh(&mut self) -> Result<(String, NewTensor)> {
        let number = self.made;
        self.made += 1;
        let name = format!("model-{}/hidden.{}", number % 100, number / 100);
        let bytes = vec![number as u8; TENSOR_BYTES].into();
        let tensor = Tensor::new(DataType::F32, vec![4, TENSOR_BYTES / 16], bytes)?;
        Ok((name, NewTensor::from(tensor)))
    }

    fn fresh_batch(&mut self) -> Result<Vec<(String, NewTensor)>> {
        (0..BATCH).map(|_| self.fresh()).collect()
    }

    /// The thousand tensors that are in play, in another order each time.
    fn in_play(&mut self) -> Vec<(String, TensorId)> {
        if self.in_play.is_empty() {
            self.in_play = self.tensors.clone();
            self.numbers.shuffle(&mut self.in_play);
            self.in_play.truncate(BATCH);
        }
        let mut chosen = self.in_play.clone();
        self.numbers.shuffle(&mut chosen);
        chosen
    }

    /// Any of all tensors.
    fn any(&mut self) -> Vec<(String, TensorId)> {
        let count = self.tensors.len();
        let mut pick = || self.tensors[self.numbers.below(count)].clone();
        (0..BATCH).map(|_| pick()).collect()
    }

    fn register(&mut self, _: Choose) -> Result<Duration> {
        let batch = self.fresh_batch()?;
        let mut ids = Vec::with_capacity(BATCH);
        let started = Instant::now();
        for (name, new) in batch {
            ids.push(self.manager.register(name.as_str(), new)?);
        }
        let taken = started.elapsed();
        ids.into_iter().try_for_each(|id| self.manager.free(id).map(drop))?;
        Ok(taken)
    }

    fn get(&mut self, choose: Choose) -> Result<Duration> {
        let batch = choose(self);
        let started = Instant::now();
        for (name, _) in &batch {
            std::hint::black_box(self.manager.get(name.as_str())?.id());
        }
        Ok(started.elapsed())
    }

    fn acquire(&mut self, choose: Choose) -> Result<Duration> {
        let batch = choose(self);
        let started = Instant::now();
        for &(_, id) in &batch {
            self.manager.acquire(id, "bert-base-uncased")?;
            self.manager.release(id, "bert-base-uncased");
        }
        Ok(started.elapsed())
    }

    fn view(&mut self, choose: Choose) -> Result<Duration> {
        let batch = choose(self);
        let names: Vec<String> = (0..BATCH).map(|number| format!("view {number}")).collect();
        let mut ids = Vec::with_capacity(BATCH);
        let window = [Span::new(1, 2), Span::new(0, 4)];
        let started = Instant::now();
        for ((_, id), name) in batch.iter().zip(&names) {
            ids.push(self.manager.create_view(*id, name, &window)?);
        }
        let taken = started.elapsed();
        ids.into_iter().try_for_each(|id| self.manager.free(id).map(drop))?;
        Ok(taken)
    }

    fn pin(&mut self, choose: Choose) -> Result<Duration> {
        let batch = choose(self);
        let started = Instant::now();
        for &(_, id) in &batch {
            self.manager.pin(id)?;
            self.manager.unpin(id);
        }
        Ok(started.elapsed())
    }

    fn declare(&mut self, _: Choose) -> Result<Duration> {
        let names: Vec<String> = (0..BATCH).map(|number| format!("declared {number}")).collect();
        let declaration = || Declaration {
            dtype: DataType::F32,
            dims: vec![4, TENSOR_BYTES / 16],
            place: Place::Host,
            producer: None,
            consumers: Vec::new(),
        };
        let declarations: Vec<Declaration> = names.iter().map(|_| declaration()).collect();
        let mut ids = Vec::with_capacity(BATCH);
        let started = Instant::now();
        for (name, declaration) in names.iter().zip(declarations) {
            ids.push(self.manager.declare(name.as_str(), declaration)?);
        }
        let taken = started.elapsed();
        ids.into_iter().try_for_each(|id| self.manager.free(id).map(drop))?;
        Ok(taken)
    }

    fn share(&mut self, choose: Choose) -> Result<Duration> {
        let batch = choose(self);
        for &(_, id) in &batch {
            self.manager.acquire(id, "its maker")?;
        }
        let started = Instant::now();
        for &(_, id) in &batch {
            self.manager.share(id, "its maker", &["another"])?;
        }
        let taken = started.elapsed();
        self.manager.release_model_tensors("", "its maker");
        self.manager.release_model_tensors("", "another");
        Ok(taken)
    }

    fn copy(&mut self, choose: Choose) -> Result<Duration> {
        let batch = choose(self);
        let names: Vec<String> = (0..BATCH).map(|number| format!("copy {number}")).collect();
        let mut ids = Vec::with_capacity(BATCH);
        let started = Instant::now();
        for ((_, id), name) in batch.iter().zip(&names) {
            ids.push(self.manager.copy_to(*id, name.as_str(), Place::Host)?);
        }
        let taken = started.elapsed();
        for copied in ids {
            let Copied::Done(id) = copied else { anyhow::bail!("the host needs no transfer") };
            self.manager.free(id)?;
        }
        Ok(taken)
    }

    fn free(&mut self, _: Choose) -> Result<Duration> {
        let mut ids = Vec::with_capacity(BATCH);
        for (name, new) in self.fresh_batch()? {
            ids.push(self.manager.register(name.as_str(), new)?);
        }
        let started = Instant::now();
        for id in ids {
            self.manager.free(id)?;
        }
        Ok(started.elapsed())
    }

    fn can_be_freed(&mut self, choose: Choose) -> Result<Duration> {
        let batch = choose(self);
        let started = Instant::now();
        for &(_, id) in &batch {
            std::hint::black_box(self.manager.can_be_freed(id));
        }
        Ok(started.elapsed())
    }

    fn release_model(&mut self, choose: Choose) -> Result<Duration> {
        let batch = choose(self);
        for &(_, id) in &batch {
            self.manager.acquire(id, "bert-base-uncased")?;
        }
        let started = Instant::now();
        std::hint::black_box(self.manager.release_model_tensors("", "bert-base-uncased"));
        Ok(started.elapsed())
    }

    /// The last of all, because it replaces the tensors that the others look at.
    fn evict(&mut self, _: Choose) -> Result<Duration> {
        // The first batch takes what room there is, and evicts nothing.
        if self.manager.stats().evicted == 0 {
            for (name, new) in self.fresh_batch()? {
                self.manager.register(name.as_str(), new)?;
            }
        }
        let batch = self.fresh_batch()?;
        let evicted = self.manager.stats().evicted;
        let started = Instant::now();
        for (name, new) in batch {
            self.manager.register(name.as_str(), new)?;
        }
        let taken = started.elapsed();
        anyhow::ensure!(self.manager.stats().evicted - evicted == BATCH as u64, "each evicts one");
        Ok(taken)
    }
}
