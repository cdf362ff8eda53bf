//! Things that are made once and shared by all who want the same: whoever comes while one is being made waits for it,
//! and nobody else does.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Entries below which dead ones are not worth looking for.
const MIN_SWEEP: usize = 64;

/// Shared things by key. Holds none of them alive.
pub(crate) struct Shared<K, T> {
    places: Mutex<Places<K, T>>,
}

type Place<T> = Arc<Mutex<Weak<T>>>;

struct Places<K, T> {
    by_key: HashMap<K, Place<T>>,
    sweep_at: usize,
}

impl<K: Eq + Hash, T> Shared<K, T> {
    pub(crate) fn new() -> Self {
        Self { places: Mutex::new(Places { by_key: HashMap::new(), sweep_at: MIN_SWEEP }) }
    }

    /// The thing of this key, made now when nobody has it.
    pub(crate) fn get_or_make<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let place = self.place(key);
        let mut held = lock(&place);
        if let Some(thing) = held.upgrade() {
            return Ok(thing);
        }
        let thing = make()?;
        *held = Arc::downgrade(&thing);
        Ok(thing)
    }

    /// Lets others find a thing that came about elsewhere.
    pub(crate) fn offer(&self, key: K, thing: &Arc<T>) {
        let place = self.place(key);
        *lock(&place) = Arc::downgrade(thing);
    }

    fn place(&self, key: K) -> Place<T> {
        let mut places = lock(&self.places);
        if places.by_key.len() >= places.sweep_at {
            places.by_key.retain(|_, place| {
                let is_wanted = Arc::strong_count(place) > 1;
                is_wanted || lock(place).strong_count() > 0
            });
            places.sweep_at = (2 * places.by_key.len()).max(MIN_SWEEP);
        }
        Arc::clone(places.by_key.entry(key).or_default())
    }
}

// A maker that panics leaves the place empty, which is a valid state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(number: u32) -> Result<Arc<u32>, ()> {
        Ok(Arc::new(number))
    }

    #[test]
    fn test_a_thing_is_shared_while_somebody_has_it() {
        let shared = Shared::new();
        let first = shared.get_or_make("key", || make(1)).unwrap();
        assert!(Arc::ptr_eq(&first, &shared.get_or_make("key", || make(2)).unwrap()));
        drop(first);
        assert_eq!(*shared.get_or_make("key", || make(3)).unwrap(), 3);
    }

    #[test]
    fn test_dead_entries_are_swept() {
        let shared = Shared::new();
        let kept = shared.get_or_make(0, || make(0)).unwrap();
        for key in 1..10 * MIN_SWEEP {
            shared.get_or_make(key, || make(1)).unwrap();
        }
        assert!(lock(&shared.places).by_key.len() <= MIN_SWEEP + 1);
        assert!(Arc::ptr_eq(&kept, &shared.get_or_make(0, || make(2)).unwrap()));
    }
}
