//! A runtime for the clients that need one: on the sink's own thread, running only while the sink polls.

use crate::batch::Outcome;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Attempts in progress. They advance only in [`poll`](Self::poll) and [`block_on`](Self::block_on), so that one sink's client
/// cannot affect another's.
pub(crate) struct Tasks {
    /// `None` only while this is being dropped.
    runtime: Option<Runtime>,
    attempts: JoinSet<Vec<Outcome>>,
}

impl Tasks {
    /// # Errors
    /// When no descriptor is available.
    pub(crate) fn new() -> io::Result<Tasks> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Tasks { runtime: Some(runtime), attempts: JoinSet::new() })
    }

    /// Attempts that have not finished.
    pub(crate) fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Starts an attempt.
    pub(crate) fn spawn(&mut self, attempt: impl Future<Output = Vec<Outcome>> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            self.attempts.spawn_on(attempt, runtime.handle());
        }
    }

    /// Advances all attempts until one has finished, for at most `wait`. Connections are kept alive meanwhile.
    ///
    /// # Panics
    /// If an attempt panicked: the sink's thread then considers the destination broken.
    pub(crate) fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let Tasks { runtime: Some(runtime), attempts } = self else { return };
        runtime.block_on(async {
            // Without an attempt this only services the connections for a moment, and returns.
            if attempts.is_empty() {
                tokio::task::yield_now().await;
                return;
            }

            let mut ended = tokio::time::timeout(wait, attempts.join_next()).await.ok().flatten();
            while let Some(result) = ended {
                match result {
                    Ok(outcomes) => done.extend(outcomes),
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => {}
                }
                ended = attempts.try_join_next();
            }
        });
    }

    /// Runs one future to its end, for at most `wait`.
    pub(crate) fn block_on<T>(&self, wait: Duration, one: impl Future<Output = T>) -> Option<T> {
        self.runtime.as_ref()?.block_on(async { tokio::time::timeout(wait, one).await.ok() })
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // Simply dropping the runtime would wait for name lookups in progress, however long they take.
        if let Some(runtime) = self.runtime.take() {
            self.attempts.abort_all();
            runtime.shutdown_background();
        }
    }
}
