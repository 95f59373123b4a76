//! Writes records in the background, so that inference never waits for a disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use holdfast_predict::{Kept, Record, Recorder};

use crate::batch::{self, Batch};
use crate::error::{HistoryError, sentence};
use crate::history::History;
use crate::queue::{Limits, Queue};

/// How a writer works.
#[derive(Clone)]
pub struct WriterOptions {
    /// Records that may wait. What finds no room is dropped, and counted.
    pub room: usize,
    /// Rows that each table keeps; the oldest go first.
    pub retention: u64,
    /// Is told, in a sentence, when writing begins to fail and when records begin to be dropped.
    pub warn: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Default for WriterOptions {
    /// A million rows, and warnings to the log.
    fn default() -> WriterOptions {
        let warn = Arc::new(|message: &str| tracing::warn!("{message}"));
        WriterOptions { room: 16_384, retention: 1_000_000, warn }
    }
}

/// The one who writes to a history. Dropped, it writes what is left and ends.
pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Queue,
    options: WriterOptions,
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    /// Whether writing failed the last time.
    failing: AtomicBool,
    /// Whether someone was told that records are dropped.
    told_of_drops: AtomicBool,
}

/// Rows that are written together at the most, and how long the first of them waits.
const BATCH: usize = 512;
const LINGER: Duration = Duration::from_millis(200);
/// Pauses after failures: twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Tries with an open file after which a batch is given up: it may be the batch.
const TRIES: u32 = 10;

impl Writer {
    /// Starts to write. The file need not be free yet: until it is, records wait.
    pub fn start(history: History, options: WriterOptions) -> Writer {
        let limits = Limits { room: options.room, batch: BATCH, linger: LINGER };
        let shared = Arc::new(Shared {
            queue: Queue::new(limits),
            options,
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            told_of_drops: AtomicBool::new(false),
        });
        let thread = std::thread::Builder::new().name("history".to_owned()).spawn({
            let shared = shared.clone();
            move || Leaving(&shared).0.run(&history)
        });
        let thread = match thread {
            Ok(thread) => Some(thread),
            Err(error) => {
                shared.warn(&format!("nothing is recorded: no thread for it ({error})"));
                shared.queue.leave();
                None
            }
        };
        Writer { shared, thread }
    }

    /// Returns when all that was recorded before is in the file, where it survives even if this
    /// process is killed. If it cannot be written now, tells why; it is tried again in any case.
    pub fn flush(&self) -> Result<(), HistoryError> {
        self.shared.queue.flush().map_err(HistoryError::Flush)
    }
}

impl Recorder for Writer {
    fn record(&self, record: Record) {
        if !self.shared.queue.push(record) {
            self.shared.drop_records(1);
        }
    }

    fn kept(&self) -> Kept {
        let Shared { written, dropped, failed, .. } = &*self.shared;
        let [written, dropped, failed] =
            [written, dropped, failed].map(|count| count.load(Ordering::Relaxed));
        Kept { written, dropped, failed }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue.end();
        if let Some(thread) = self.thread.take() {
            // If it panicked, that was told when it did.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, history: &History) {
        let mut unpruned = 0;
        // A tenth more than what is kept, at the most.
        let prune_after = (self.options.retention / 10).max(1);
        while let Some(records) = self.queue.next() {
            let batch = Batch::new(records, SystemTime::now());
            if !self.write(history, &batch) {
                continue;
            }
            unpruned += batch.records();
            if unpruned >= prune_after {
                unpruned = 0;
                self.prune(history);
            }
        }
    }

    /// Writes a batch, however often that takes. Tells whether it is in the file.
    fn write(&self, history: &History, batch: &Batch) -> bool {
        let (mut pause, mut tries) = (FIRST_PAUSE, 0);
        loop {
            // Whether the file could be opened at all: if not, it is not the batch.
            let mut opened = false;
            let result = history.file.with(|connection| {
                opened = true;
                let path = history.path().to_owned();
                batch.write(connection).map_err(|source| HistoryError::Write { path, source })
            });
            let Err(error) = result else {
                self.written.fetch_add(batch.records(), Ordering::Relaxed);
                self.queue.settle(batch.records());
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the history is written again");
                }
                return true;
            };
            let why = describe(&error);
            self.failed.fetch_add(1, Ordering::Relaxed);
            if !self.failing.swap(true, Ordering::Relaxed) {
                self.warn(&format!("{why}; Holdfast goes on, and tries again"));
            }
            tries += u32::from(opened);
            // After some errors a file is of no use until it is opened again.
            history.file.close();
            if tries >= TRIES || self.queue.is_ended() {
                self.queue.fail(&why, batch.records());
                self.drop_records(batch.records());
                return false;
            }
            self.queue.fail(&why, 0);
            self.queue.back_off(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn prune(&self, history: &History) {
        let pruned = history.file.with(|connection| {
            let path = history.path().to_owned();
            batch::prune(connection, self.options.retention)
                .map_err(|source| HistoryError::Write { path, source })
        });
        // Rows that are too many are there the next time.
        if let Err(error) = pruned {
            tracing::debug!("old rows stay for now: {}", describe(&error));
            self.failed.fetch_add(1, Ordering::Relaxed);
            history.file.close();
        }
    }

    fn drop_records(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        if !self.told_of_drops.swap(true, Ordering::Relaxed) {
            self.warn("records are dropped: the history is not written fast enough, or not at all");
        }
    }

    fn warn(&self, message: &str) {
        (self.options.warn)(message);
    }
}

/// Tells those who wait that nobody writes any more, however it came to that.
struct Leaving<'a>(&'a Shared);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let left = self.0.queue.leave();
        self.0.dropped.fetch_add(left, Ordering::Relaxed);
    }
}

/// An error with its cause, in a sentence.
fn describe(error: &HistoryError) -> String {
    match error {
        HistoryError::Write { source, .. } => format!("{error}: {}", sentence(source)),
        other => other.to_string(),
    }
}
