//! Uploads an object: in one request, or in parts if it is large.

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error, MultipartId, ObjectStoreExt};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Length of all parts but the last, and of the longest object sent in one request. Amazon accepts no part below 5 MiB except the
/// last, and Cloudflare's R2 requires all others to have the same length.
const PART_BYTES: usize = 8 << 20;

/// Parts of an object that are sent at the same time: over a long distance a single connection does not fill the link.
const PARTS_AT_ONCE: usize = 4;

/// How long the store may take to answer a request that is not about the object's bytes.
pub(super) const SIDE_REQUEST_MAX: Duration = Duration::from_secs(5);

/// Most unfinished uploads to remember: those of an outage, one per batch in flight.
const LEFTOVERS_MAX: usize = 1_000;

/// Stores an object, whole or not at all. Replaces one of the same name.
///
/// # Errors
/// The store refused it, or did not answer: it may be stored.
pub(super) async fn put(
    store: &Arc<AmazonS3>,
    path: &Path,
    object: Bytes,
    leftovers: &Leftovers,
) -> Result<(), Error> {
    if object.len() <= PART_BYTES {
        return store.put(path, object.into()).await.map(drop);
    }

    let id = store.create_multipart(path).await?;
    let mut upload = Upload { path: path.clone(), id, is_complete: false, leftovers };
    upload.send(store, object).await
}

/// Uploads that were started and not finished. The store may keep their parts, and charge for them.
#[derive(Clone, Default)]
pub(super) struct Leftovers {
    uploads: Arc<Mutex<Vec<(Path, MultipartId)>>>,
    /// Held by the one that removes them.
    aborting: Arc<tokio::sync::Mutex<()>>,
}

impl Leftovers {
    /// Asks the store to remove their parts. What it does not answer in time is left for the next call.
    pub(super) async fn abort(&self, store: &Arc<AmazonS3>) {
        let _one = self.aborting.lock().await;
        loop {
            let Some((path, id)) = self.lock().first().cloned() else { return };
            match timeout(SIDE_REQUEST_MAX, store.abort_multipart(&path, &id)).await {
                // An upload that is not found has finished: its last answer was lost.
                Ok(Ok(()) | Err(Error::NotFound { .. })) => {
                    self.lock().retain(|(_, known)| *known != id);
                }
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Whether there are some that nobody removes at present.
    pub(super) fn are_left(&self) -> bool {
        !self.lock().is_empty() && self.aborting.try_lock().is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Path, MultipartId)>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A multipart upload. If it ends before it is complete, by an error or because its sink abandons it, it becomes a leftover.
struct Upload<'a> {
    path: Path,
    id: MultipartId,
    is_complete: bool,
    leftovers: &'a Leftovers,
}

impl Upload<'_> {
    async fn send(&mut self, store: &Arc<AmazonS3>, mut object: Bytes) -> Result<(), Error> {
        let bytes = object.len() as u64;
        let (mut under_way, mut sent) = (JoinSet::new(), Vec::new());
        let mut next = 0;
        while !object.is_empty() || !under_way.is_empty() {
            if !object.is_empty() && under_way.len() < PARTS_AT_ONCE {
                let bytes = object.split_to(PART_BYTES.min(object.len()));
                under_way.spawn(self.part(store, next, bytes));
                next += 1;
            } else if let Some(part) = under_way.join_next().await {
                sent.push(part??);
            }
        }

        sent.sort_by_key(|(at, _)| *at);
        let parts = sent.into_iter().map(|(_, part)| part).collect();
        let completed = store.complete_multipart(&self.path, &self.id, parts).await;
        let Err(error) = completed else {
            self.is_complete = true;
            return Ok(());
        };
        // The body of that answer matters, and may be cut where the object is stored: without a look, it would be sent again as long
        // as that lasts. If it is there from an earlier upload, this one's parts are left over.
        match self.is_stored(store, bytes).await {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Whether an object of this name and length is there: names are made from rows, so it is this one. Not if the key may not
    /// look (`s3:GetObject`).
    async fn is_stored(&self, store: &Arc<AmazonS3>, bytes: u64) -> bool {
        let found = timeout(SIDE_REQUEST_MAX, store.head(&self.path)).await;
        found.is_ok_and(|found| found.is_ok_and(|found| found.size == bytes))
    }

    /// Sends the part with index `at`.
    fn part(
        &self,
        store: &Arc<AmazonS3>,
        at: usize,
        bytes: Bytes,
    ) -> impl Future<Output = Result<(usize, PartId), Error>> + use<> {
        let (store, path, id) = (Arc::clone(store), self.path.clone(), self.id.clone());
        async move { Ok((at, store.put_part(&path, &id, at, bytes.into()).await?)) }
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        let mut all = self.leftovers.lock();
        if all.len() == LEFTOVERS_MAX {
            all.remove(0);
        }
        all.push((self.path.clone(), self.id.clone()));
    }
}
