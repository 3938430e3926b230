//! Finds the lightest place: a binary heap of lower bounds, lowest first.

/// A lower bound for the weight of a place.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) bound: f64,
    pub(super) place: u32,
    /// Generation of the key that the bound belongs to.
    pub(super) generation: u32,
}

/// One bound per taken place. Bounds of freed places stay until they reach the top or their room is needed.
#[derive(Default)]
pub(super) struct Bounds {
    heap: Vec<Bound>,
}

impl Bounds {
    /// Memory for this many places, in bytes.
    pub(super) const fn memory_max_bytes(places: usize) -> usize {
        2 * places * size_of::<Bound>()
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Bound>()
    }

    /// Reserves room for this many places. Call it before the first push.
    pub(super) fn make_room(&mut self, places: usize) {
        self.heap.reserve_exact(2 * places);
    }

    /// The lowest bound.
    pub(super) fn first(&self) -> Option<Bound> {
        self.heap.first().copied()
    }

    /// Adds a bound. `is_old` tells which ones may be dropped if there is no room.
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

    /// Removes the lowest bound.
    pub(super) fn pop(&mut self) {
        if !self.heap.is_empty() {
            self.heap.swap_remove(0);
            self.sink(0);
        }
    }

    /// Raises the lowest bound to `weight`.
    pub(super) fn raise_first(&mut self, weight: f64) {
        if let Some(first) = self.heap.first_mut() {
            first.bound = weight;
            self.sink(0);
        }
    }

    /// Multiplies all weights by `factor`.
    pub(super) fn scale(&mut self, factor: f64) {
        for one in &mut self.heap {
            one.bound *= factor;
        }
    }

    /// Moves a bound down to its position.
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
