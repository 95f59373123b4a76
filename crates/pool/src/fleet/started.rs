//! One browser, from its start to its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_browsers::{Browser, Installed, Launch};
use holdfast_devices::lane::Lane;
use holdfast_wire::Backend;
use tokio::sync::watch;
use tokio::time::Instant;

use super::health::{Seen, Verdict, judge};
use super::history::ScalingStep;
use super::metrics::BrowserState;
use super::state::{BACKENDS, Facts, Order};
use super::{Shared, missing};
use crate::pool::explain;

/// How long a browser has from its start to its first hello.
const JOIN_LIMIT: Duration = Duration::from_secs(60);

/// How long a browser has to finish what it has. What it does not is done elsewhere.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// How often a browser is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How often its memory is measured. The kernel goes through all its pages for it, which a run in
/// it would feel.
const MEASURE: Duration = Duration::from_secs(5);

/// How a browser ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// As it was told to.
    AsTold(String),
    /// It never joined.
    NeverJoined(String),
    /// It failed after it had joined.
    Failed { reason: String, worked: bool },
    /// It was drained to be replaced.
    Full { reason: String, worked: bool },
}

/// What a browser's task has.
pub(super) struct Started {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u64,
    pub(super) source: usize,
    pub(super) page: String,
    pub(super) door: String,
    pub(super) order: watch::Receiver<Order>,
}

impl Started {
    /// Starts the browser, watches over it and ends it.
    pub(super) async fn run(mut self) -> Ended {
        let browser = match self.start().await {
            Ok(browser) => Arc::new(browser),
            Err(reason) => return Ended::NeverJoined(reason),
        };
        let ended = match self.join(&browser).await {
            Ok(()) => self.serve(&browser).await,
            Err(ended) => ended,
        };
        self.set(BrowserState::Closing);
        for lane in self.lanes() {
            lane.leave("its browser is closed", false);
        }
        if let Err(error) = browser.close().await {
            (self.shared.progress)(&explain(&error));
        }
        self.shared.scheduler.forget_page(&self.page);
        ended
    }

    async fn start(&self) -> Result<Browser, String> {
        let installed = self.find().await?;
        let shared = &self.shared;
        (shared.progress)(&format!("starting {installed}"));
        let options = &shared.options;
        let link = options.link(&self.door, &self.page);
        let kind = installed.kind;
        let mut launch = Launch::new(installed, link, options.guard.clone());
        launch.headless = options.headless;
        launch.extra_arguments.clone_from(&options.extra_arguments);
        let browser = launch.start().await.map_err(|error| explain(&error))?;
        let facts = Facts {
            kind,
            version: browser.version().to_owned(),
            pid: browser.pid(),
            profile: browser.profile().to_owned(),
            memory_limit: options.memory_limit(kind),
        };
        if let Some(entry) = shared.state().browsers.get_mut(&self.id) {
            entry.facts = Some(facts);
        }
        self.set(BrowserState::Joining);
        Ok(browser)
    }

    /// The program; it is looked for only once.
    async fn find(&self) -> Result<Installed, String> {
        let (known, source) = {
            let state = self.shared.state();
            let record = &state.records[self.source];
            (record.installed.clone(), record.source.clone())
        };
        if let Some(installed) = known {
            return Ok(installed);
        }
        let shared = self.shared.clone();
        let found = tokio::task::spawn_blocking(move || {
            source.find(&shared.options, &|text| (shared.progress)(text))
        });
        let found =
            found.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let installed = found.map_err(|error| explain(&error))?;
        self.shared.state().records[self.source].installed = Some(installed.clone());
        Ok(installed)
    }

    /// Waits for its page to join.
    async fn join(&mut self, browser: &Browser) -> Result<(), Ended> {
        (self.shared.progress)("waiting for the browser's lanes");
        let joined = self.shared.lanes.wait_for(|lane| self.owns(lane) && lane.is_connected());
        let mut order = self.order.clone();
        let joined = tokio::select! {
            joined = tokio::time::timeout(JOIN_LIMIT, browser.while_running(joined)) => joined,
            why = told_to_go(&mut order) => return Err(Ended::AsTold(why)),
        };
        let lane = match joined {
            Ok(Ok(lane)) => lane,
            Ok(Err(error)) => return Err(Ended::NeverJoined(explain(&error))),
            Err(_) => {
                let (name, limit) = (browser.name(), JOIN_LIMIT.as_secs());
                return Err(Ended::NeverJoined(format!("{name} did not join within {limit} s")));
            }
        };
        let lacks = BACKENDS.into_iter().filter_map(|b| Some((b, missing(&lane, b)?)));
        let lacks: Vec<(Backend, String)> = lacks.collect();
        {
            let mut state = self.shared.state();
            if let Some(entry) = state.browsers.get_mut(&self.id) {
                entry.lacks.clone_from(&lacks);
            }
            state.records[self.source].joined(lacks, Instant::now());
            state.note(ScalingStep::Join, self.id, "its page is there");
        }
        self.set(BrowserState::Serving);
        Ok(())
    }

    /// Watches over it for as long as it is fine.
    async fn serve(&mut self, browser: &Arc<Browser>) -> Ended {
        let mut watch = browser.watch();
        let mut tab_crashed: Option<Instant> = None;
        let mut roll_call = RollCall::new();
        let mut worked = false;
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut measure = tokio::time::interval(MEASURE);
        measure.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                exit = browser.exited() => {
                    worked |= self.has_worked();
                    let reason = explain(&exit.into_error(browser.name()));
                    return Ended::Failed { reason, worked };
                }
                why = told_to_go(&mut self.order) => {
                    self.drain(browser, &why).await;
                    return Ended::AsTold(why);
                }
                () = watch.crashed(), if tab_crashed.is_none() => tab_crashed = Some(Instant::now()),
                _ = measure.tick() => self.measure(browser).await,
                _ = look.tick() => {}
            }
            if self.has_worked() && !worked {
                worked = true;
                self.shared.state().records[self.source].worked();
            }
            let seen = self.see(tab_crashed.map(|at| at.elapsed()), &mut roll_call);
            match judge(&seen) {
                Verdict::Fine => {}
                Verdict::WrongTab => (watch, tab_crashed) = (browser.watch(), None),
                Verdict::Replace(reason) => {
                    let reason = format!("{}: {reason}", browser.name());
                    return Ended::Failed { reason, worked };
                }
                Verdict::Drain(reason) => {
                    self.drain(browser, &reason).await;
                    worked |= self.has_worked();
                    return Ended::Full { reason, worked };
                }
            }
        }
    }

    fn see(&self, tab_crashed: Option<Duration>, roll_call: &mut RollCall) -> Seen {
        let lanes = self.lanes();
        let heard = lanes.iter().filter(|lane| lane.is_connected()).count();
        let lost = roll_call.note(&lanes, heard);
        let state = self.shared.state();
        let entry = state.browsers.get(&self.id);
        let facts = entry.and_then(|entry| entry.facts.as_ref());
        Seen {
            heard,
            away: lanes.len() - heard,
            silent: roll_call.heard_at.elapsed(),
            lost,
            incomplete: roll_call.complete_at.elapsed(),
            tab_crashed,
            memory: entry.and_then(|entry| entry.memory),
            memory_limit: facts.map_or(u64::MAX, |facts| facts.memory_limit),
        }
    }

    async fn measure(&self, browser: &Arc<Browser>) {
        let browser = browser.clone();
        let measured = tokio::task::spawn_blocking(move || browser.memory()).await;
        if let (Ok(memory), Some(entry)) =
            (measured, self.shared.state().browsers.get_mut(&self.id))
        {
            entry.memory = memory;
        }
    }

    /// Gives it nothing more and waits until it has finished what it has.
    async fn drain(&mut self, browser: &Browser, why: &str) {
        if *self.order.borrow() == Order::End {
            return;
        }
        self.shared.state().note(ScalingStep::Drain, self.id, why);
        self.set(BrowserState::Draining);
        self.shared.scheduler.withdraw(&self.page);
        let (scheduler, page) = (&self.shared.scheduler, &self.page);
        let finished = async {
            while scheduler.crew(page).busy > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let mut order = self.order.clone();
        tokio::select! {
            () = finished => {}
            _ = browser.exited() => {}
            // Nobody is left to tell it anything: the pool is gone.
            _ = order.wait_for(|order| *order == Order::End) => {}
            () = tokio::time::sleep(DRAIN_LIMIT) => {}
        }
    }

    fn has_worked(&self) -> bool {
        self.shared.scheduler.crew(&self.page).answered > 0
    }

    fn set(&self, state: BrowserState) {
        self.shared.state().set(self.id, state);
        self.shared.changed();
        self.shared.poke.notify_one();
    }

    fn lanes(&self) -> Vec<Lane> {
        self.shared.lanes.all().into_iter().filter(|lane| self.owns(lane)).collect()
    }

    fn owns(&self, lane: &Lane) -> bool {
        lane.hello().page == self.page
    }
}

/// What is remembered of a browser's lanes from one look to the next.
struct RollCall {
    /// When one was heard last.
    heard_at: Instant,
    /// When all were there last, be it without a line for the moment.
    complete_at: Instant,
    /// All that there were, by their numbers in the page: one that is started again keeps its own.
    numbers: BTreeSet<u32>,
}

impl RollCall {
    fn new() -> RollCall {
        let now = Instant::now();
        RollCall { heard_at: now, complete_at: now, numbers: BTreeSet::new() }
    }

    /// Takes note of the lanes that are there, and tells how many are not any more.
    fn note(&mut self, lanes: &[Lane], heard: usize) -> usize {
        let there: BTreeSet<u32> = lanes.iter().map(|lane| lane.hello().lane).collect();
        self.numbers.extend(&there);
        let lost = self.numbers.difference(&there).count();
        let now = Instant::now();
        if heard > 0 {
            self.heard_at = now;
        }
        if lost == 0 {
            self.complete_at = now;
        }
        lost
    }
}

/// Waits for an order to go, and tells why.
async fn told_to_go(order: &mut watch::Receiver<Order>) -> String {
    match order.wait_for(|order| *order != Order::Stay).await.as_deref() {
        Ok(Order::Leave(why)) => why.clone(),
        Ok(Order::Stay | Order::End) | Err(_) => "the pool is closed".to_owned(),
    }
}
