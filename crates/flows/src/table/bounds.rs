//! Which place is the lightest: a binary heap of lower bounds, the lowest first.

/// What is known of a place: its weight is at least `bound`.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) bound: f64,
    pub(super) place: u32,
    /// Of the key that it is about.
    pub(super) generation: u32,
}

/// A bound for each place that is taken. Those of places that were freed stay until they come to the top, or their room is needed.
#[derive(Default)]
pub(super) struct Bounds {
    heap: Vec<Bound>,
}

impl Bounds {
    /// The bytes that it takes for so many places.
    pub(super) const fn memory_max_bytes(places: usize) -> usize {
        2 * places * size_of::<Bound>()
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Bound>()
    }

    /// Has room for so many places. To be called before the first is pushed.
    pub(super) fn make_room(&mut self, places: usize) {
        self.heap.reserve_exact(2 * places);
    }

    /// The lowest.
    pub(super) fn first(&self) -> Option<Bound> {
        self.heap.first().copied()
    }

    /// Adds one; `is_old` says which may go if there is no room.
    pub(super) fn push(&mut self, bound: Bound, is_old: impl Fn(&Bound) -> bool) {
        if self.heap.len() == self.heap.capacity() {
            self.heap.retain(|one| !is_old(one));
            self.heap.sort_unstable_by(|a, b| a.bound.total_cmp(&b.bound));
        }

        self.heap.push(bound);
        let mut at = self.heap.len() - 1;
        while at > 0 && self.heap[at].bound < self.heap[(at - 1) / 2].bound {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Takes the lowest away.
    pub(super) fn pop(&mut self) {
        if !self.heap.is_empty() {
            self.heap.swap_remove(0);
            self.sink(0);
        }
    }

    /// The weight of the place with the lowest bound is at least this.
    pub(super) fn raise_first(&mut self, weight: f64) {
        if let Some(first) = self.heap.first_mut() {
            first.bound = weight;
            self.sink(0);
        }
    }

    /// All weights are multiplied by this.
    pub(super) fn scale(&mut self, factor: f64) {
        for one in &mut self.heap {
            one.bound *= factor;
        }
    }

    /// Moves a bound down to where it belongs.
    fn sink(&mut self, mut at: usize) {
        loop {
            let child = 2 * at + 1;
            let other = child + 1;
            let Some(left) = self.heap.get(child) else { return };
            let is_right = self.heap.get(other).is_some_and(|right| right.bound < left.bound);
            let least = if is_right { other } else { child };
            if self.heap[least].bound >= self.heap[at].bound {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}
