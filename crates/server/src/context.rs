//! What all handlers of one server share.

use std::sync::Arc;
use std::time::Instant;

use holdfast_devices::Secret;
use holdfast_devices::lane::Lanes;
use holdfast_history::History;
use holdfast_pool::Pool;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::assets::Assets;
use crate::site::Site;

pub(crate) struct Context {
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) history: Option<History>,
    /// Where others find it.
    pub(crate) site: Arc<Site>,
    pub(crate) assets: Assets,
    /// Opens sockets; stands in the join link.
    pub(crate) join_token: Secret,
    /// Opens control; stands in `server.json` only.
    pub(crate) control_token: Secret,
    pub(crate) started: Instant,
    /// Sockets that have not said hello yet may take these.
    pub(crate) waiting_sockets: Arc<Semaphore>,
    /// Everything that runs for this server.
    pub(crate) tasks: TaskTracker,
    /// Requests of control, until their answers are handed over.
    pub(crate) requests: TaskTracker,
    /// Control takes nothing new. Browsers are still served: what is under way may need one that
    /// is just starting, or blobs.
    pub(crate) draining: CancellationToken,
    /// No more requests are taken at all; those under way are finished.
    pub(crate) closing: CancellationToken,
    /// Everything ends now.
    pub(crate) ended: CancellationToken,
}

impl Context {
    /// Runs a task that ends with the server at the latest.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move { ended.run_until_cancelled_owned(task).await });
    }

    /// Where a browser joins.
    pub(crate) fn join_link(&self) -> String {
        self.join_link_at(&self.site)
    }

    /// Where a browser joins by this door.
    pub(crate) fn join_link_at(&self, site: &Site) -> String {
        format!("{}/join#token={}", site.origin(), self.join_token.reveal())
    }
}
