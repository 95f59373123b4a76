//! The way of one request, in its caller's own task: choice after choice, device after device,
//! until there is an answer or a reason why there is none.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_devices::{ErrorKind, Loaded};
use tokio::time::Instant;

use crate::choice::Choice;
use crate::ledger::{Shapes, Sighting};
use crate::pool::explain;
use crate::prepare::Unprepared;
use crate::program::Answered;
use crate::request::{Answer, Failure, PassedOver, Request, RunError};
use crate::route::Prepared;
use crate::scheduler::Scheduler;
use crate::scheduler::fault::{Failed, Fault};
use crate::scheduler::member::MemberId;
use crate::scheduler::queue::Wanted;
use crate::scheduler::together::run_alone;
use crate::scheduler::turn::{Granted, Lease, Turn, Used};
use crate::values::Values;

/// What a request needs before it can be put into the queue.
pub(crate) trait Ways: Sync {
    /// Makes sure that there is a device; the error says why there is none.
    fn ensure(
        &self,
        wanted: Wanted,
        patience: Patience,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// The request's model for a choice: by way of what it shares with others, where it may.
    fn prepare(
        &self,
        request: &Request,
        choice: Choice,
    ) -> impl Future<Output = Result<Arc<Prepared>, Unprepared>> + Send;

    /// Is told what ran for a request that was answered.
    fn saw(&self, sighting: Sighting);
}

/// What somebody does who wants a device while there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It asks for the first time: while what could be started is left alone because it failed,
    /// it is told so.
    Fresh,
    /// It had a device and lost it, so it waits until another one is there.
    Bereft,
}

/// How long a request waits for devices after it has lost one, however many are lost meanwhile.
const BEREFT_LIMIT: Duration = Duration::from_secs(120);

/// Devices that a request may take down.
const STRIKES: usize = 3;

/// How often a request may find that what it needs is gone. It has no part in that, but there may
/// be a device that never keeps what it loads.
const FALSE_STARTS: usize = 16;

/// Carries a request to its end. `arrival` is its number.
pub(crate) async fn carry(
    scheduler: &Scheduler,
    ways: &impl Ways,
    request: &Request,
    arrival: u64,
) -> Result<Answer, RunError> {
    let mut carried = Carried {
        scheduler,
        request,
        arrival,
        failed_on: Vec::new(),
        strikes: 0,
        false_starts: 0,
        bereft_since: None,
        is_last: false,
        queued: Duration::ZERO,
        spent: Duration::ZERO,
        alone: false,
    };
    let mut passed_over = Vec::new();
    let mut choices = scheduler.order(request.graph.graph, &request.choices).into_iter().peekable();
    while let Some(wanted) = choices.next() {
        carried.is_last = choices.peek().is_none();
        match carried.on(ways, wanted).await {
            Ok(answer) => return Ok(Answer { passed_over, ..answer }),
            Err(Left::Request(error)) => return Err(error),
            Err(Left::Choice(reason)) => {
                passed_over.push(PassedOver { choice: wanted.choice, reason });
            }
        }
    }
    Err(RunError::NoDevice(passed_over))
}

/// Why a request leaves a choice.
enum Left {
    /// Another choice may do better.
    Choice(String),
    /// No other would.
    Request(RunError),
}

struct Carried<'a> {
    scheduler: &'a Scheduler,
    request: &'a Request,
    arrival: u64,
    failed_on: Vec<Failure>,
    /// Devices that were lost under it.
    strikes: usize,
    /// How often it could not begin.
    false_starts: usize,
    /// When it lost a device for the first time.
    bereft_since: Option<Instant>,
    /// Whether there is no other choice after this one.
    is_last: bool,
    /// How long it has waited for its turn.
    queued: Duration,
    /// How much of its deadline is gone.
    spent: Duration,
    /// Whether what it shares with others has failed, so that its model runs on its own.
    alone: bool,
}

impl Carried<'_> {
    /// Tries one choice.
    async fn on(&mut self, ways: &impl Ways, wanted: Wanted) -> Result<Answer, Left> {
        let choice = wanted.choice;
        let order = (self.request.priority, self.arrival);
        let mut avoid: Option<MemberId> = None;
        let mut refused = 0;
        loop {
            self.ensure(ways, wanted).await?;
            let model = ways.prepare(self.request, choice).await.map_err(|error| match error {
                Unprepared::Choice(reason) => Left::Choice(reason),
                Unprepared::Request(error) => Left::Request(error),
            })?;
            let (model, values) = self.route(model, wanted);
            let is_shared = model.shared.is_some();
            if let Some(reason) = self.scheduler.refusal(wanted, &model) {
                if is_shared {
                    self.alone = true;
                    continue;
                }
                return Err(Left::Choice(reason));
            }
            let inputs = &self.request.inputs;
            let mut ticket = self.scheduler.enqueue(wanted, order, &model, inputs, values, avoid);
            let since = ticket.since();
            let turn = ticket.turn(self.left()).await;
            // It has its turn, or is not in the queue any more.
            drop(ticket);
            let Some(turn) = turn else {
                return Err(Left::Request(RunError::Expired(self.queued + since.elapsed())));
            };
            let (granted, rows, result) = match turn {
                Turn::Run(lease) => self.run(lease, since).await,
                Turn::Ran { granted, rows, result } => (granted, Some(rows), result),
                Turn::Cannot(_) | Turn::Wrong(_) if is_shared => {
                    self.alone = true;
                    continue;
                }
                Turn::Cannot(reason) => return Err(Left::Choice(reason)),
                Turn::Wrong(error) => return Err(Left::Request(error.into())),
                // It only waited, so however often that happens it says nothing about the request.
                Turn::Gone => {
                    self.queued += since.elapsed();
                    // The first wait may have been for a load, which does not count.
                    if self.bereft_since.is_some() {
                        self.spent += since.elapsed();
                    }
                    self.bereft_since.get_or_insert_with(Instant::now);
                    if self.left().is_some_and(|left| left.is_zero()) {
                        return Err(Left::Request(RunError::Expired(self.queued)));
                    }
                    continue;
                }
            };
            self.queued += granted.at.saturating_duration_since(since);
            self.spent += granted.counted(since, Instant::now());
            match result {
                Ok(answered) => {
                    ways.saw(self.sighting(&granted, since, &answered, rows));
                    return Ok(self.answer(&granted, since, answered, rows));
                }
                // Whether the model alone fails too, and what it says, is what counts.
                Err(failed) if is_shared && is_final(&failed) => self.alone = true,
                Err(failed) => match self.failed(&granted, failed)? {
                    After::Again(failed) => avoid = failed,
                    // A device that is there and says no is believed when a second one says so,
                    // or when there is no second one.
                    After::Refused(reason) => {
                        refused += 1;
                        if refused >= self.scheduler.count(wanted).clamp(1, 2) {
                            return Err(Left::Choice(reason));
                        }
                        avoid = Some(granted.member);
                    }
                },
            }
        }
    }

    /// Makes sure that there is a device. To wait for one again counts for the deadline.
    async fn ensure(&mut self, ways: &impl Ways, wanted: Wanted) -> Result<(), Left> {
        let patience = match self.bereft_since {
            // Where there is another choice, it is answered sooner there.
            Some(since) if self.is_last && since.elapsed() < BEREFT_LIMIT => Patience::Bereft,
            _ => Patience::Fresh,
        };
        let ensured = ways.ensure(wanted, patience);
        let (Patience::Bereft, Some(left)) = (patience, self.left()) else {
            return ensured.await.map_err(Left::Choice);
        };
        let asked = Instant::now();
        let ensured = tokio::time::timeout(left, ensured).await;
        self.queued += asked.elapsed();
        self.spent += asked.elapsed();
        let late = |_| Left::Request(RunError::Expired(self.queued));
        ensured.map_err(late)?.map_err(Left::Choice)
    }

    /// The way to run its model, and what it computes on that way.
    fn route(&self, model: Arc<Prepared>, wanted: Wanted) -> (Arc<Prepared>, Option<Arc<Values>>) {
        let Some(whole) = model.alone() else { return (model, None) };
        if self.alone || !self.scheduler.runs(wanted, &model) {
            return (whole.clone(), None);
        }
        let Request { inputs, namespace, .. } = self.request;
        match Values::of(&model, inputs, namespace) {
            Some(values) => (model, Some(Arc::new(values))),
            None => (whole.clone(), None),
        }
    }

    /// Runs it here, with a slot of its own.
    async fn run(&self, mut lease: Lease, since: Instant) -> (Granted, Option<usize>, Ran) {
        let spent = lease.granted.counted(since, Instant::now());
        let left = self.left().map(|left| left.saturating_sub(spent));
        let until = left.map(|left| Instant::now() + left);
        if lease.granted.loaded_at > since {
            self.scheduler.progress(&format!("running on {}", lease.granted.device.info().name));
        }
        let result = match run_alone(&mut lease, &self.request.inputs, left).await {
            Ok((answered, ran)) => {
                lease.used = Used::well(1, ran);
                Ok(answered)
            }
            // That the caller has no more time says nothing about the device. While there is some
            // left, it is the device that took too long.
            Err(error)
                if error.kind() == ErrorKind::Timeout
                    && until.is_some_and(|until| until <= Instant::now()) =>
            {
                Err(Failed { error, fault: Fault::Caller })
            }
            Err(error) => Err(lease.failed(error)),
        };
        (lease.granted.clone(), None, result)
    }

    /// What is left of the deadline.
    fn left(&self) -> Option<Duration> {
        self.request.deadline.map(|deadline| deadline.saturating_sub(self.spent))
    }

    /// What to do after a run that failed.
    fn failed(&mut self, granted: &Granted, failed: Failed) -> Result<After, Left> {
        let Failed { error, fault } = failed;
        // The caller's own deadline has passed, wherever else it could run. The device may have been
        // slow by its own measure before that.
        let is_late =
            error.kind() == ErrorKind::Timeout && self.left().is_some_and(|left| left.is_zero());
        if fault == Fault::Caller || is_late {
            return Err(Left::Request(error.into()));
        }
        if fault == Fault::Busy {
            return Ok(After::Again(None));
        }
        let (device, reason) = (granted.device.info().name.clone(), explain(&error));
        if fault == Fault::NotBegun {
            self.false_starts += 1;
            if self.false_starts >= FALSE_STARTS {
                return Err(Left::Choice(format!("it could not begin there: {reason}")));
            }
            return Ok(After::Again(Some(granted.member)));
        }
        self.failed_on.push(Failure { device, reason: reason.clone() });
        if fault == Fault::Lost {
            self.strikes += 1;
            self.bereft_since.get_or_insert_with(Instant::now);
            if self.strikes >= STRIKES {
                return Err(Left::Request(RunError::Failed(std::mem::take(&mut self.failed_on))));
            }
        }
        self.scheduler.state().account.failovers += 1;
        Ok(match fault {
            Fault::Refused => After::Refused(reason),
            _ => After::Again(Some(granted.member)),
        })
    }

    /// What ran, where and for how long.
    fn sighting(
        &self,
        granted: &Granted,
        since: Instant,
        answered: &Answered,
        rows: Option<usize>,
    ) -> Sighting {
        let (alone, browser, page) = {
            let state = self.scheduler.state();
            let options = state.members.get(&granted.member).map(|member| &member.options);
            let browser = options.and_then(|options| options.browser.clone());
            let page = options.and_then(|options| options.page.clone());
            (state.ran_alone(granted), browser, page)
        };
        let Answered { outcome, segments, transfer, given_bytes, reused, .. } = answered;
        let returned = outcome.outputs.iter().map(|output| output.tensor.bytes().len() as u64);
        let shapes = Shapes::of(&self.request.inputs);
        let own_rows = shapes.batch();
        Sighting {
            at: SystemTime::now(),
            model: self.request.model.clone(),
            route: granted.model.clone(),
            // Of a batch, what ran is the whole of it.
            shapes: match rows.filter(|rows| *rows > own_rows && granted.model.rows.is_some()) {
                Some(rows) => shapes.with_rows(rows),
                None => shapes,
            },
            rows: own_rows,
            device: outcome.device.clone(),
            browser,
            page,
            memory_bytes: None,
            segments: segments.iter().copied().zip(outcome.steps.iter().copied()).collect(),
            transfer: *transfer,
            queued: self.queued + outcome.queued,
            loaded: (granted.loaded_at > since).then(|| granted.loaded.as_ref().clone()),
            moved_bytes: given_bytes + returned.sum::<u64>(),
            reused_bytes: reused.bytes,
            alone,
        }
    }

    fn answer(
        &mut self,
        granted: &Granted,
        since: Instant,
        answered: Answered,
        rows: Option<usize>,
    ) -> Answer {
        let loaded = granted.loaded.as_ref().clone();
        // What was there before it came, it did not wait for.
        let loaded = match granted.loaded_at > since {
            true => loaded,
            false => Loaded {
                new_weight_bytes: 0,
                downloaded_bytes: 0,
                took: Duration::ZERO,
                first_run: None,
                first_run_error: None,
                ..loaded
            },
        };
        let Answered { outcome, took, transfer, reused, .. } = answered;
        Answer {
            outcome,
            loaded,
            took,
            transfer,
            reused,
            queued: self.queued,
            batch_rows: rows.unwrap_or(1),
            passed_over: Vec::new(),
            failed_on: std::mem::take(&mut self.failed_on),
        }
    }
}

type Ran = Result<Answered, Failed>;

/// Whether asking again would end the same way.
fn is_final(failed: &Failed) -> bool {
    failed.fault == Fault::Refused || failed.error.kind() == ErrorKind::Caller
}

/// What to do after a run that failed.
enum After {
    /// Try again, elsewhere if possible.
    Again(Option<MemberId>),
    /// The device is there and said no.
    Refused(String),
}
