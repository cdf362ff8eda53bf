//! Names of owners and groups, remembered for the length of one request. Blocking: reads the account files.

use std::collections::HashMap;

use crate::users;

/// More different owners than this in one answer are somebody's game; the rest are shown as numbers.
const NAMES_MAX: usize = 256;

/// The names looked up so far.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    /// The name of a user id, or the number.
    pub(crate) fn user(&mut self, uid: u32) -> String {
        remember(&mut self.users, uid, users::user_name)
    }

    /// The name of a group id, or the number.
    pub(crate) fn group(&mut self, gid: u32) -> String {
        remember(&mut self.groups, gid, users::group_name)
    }
}

fn remember(names: &mut HashMap<u32, String>, id: u32, look_up: impl Fn(u32) -> String) -> String {
    if let Some(name) = names.get(&id) {
        return name.clone();
    }
    if names.len() >= NAMES_MAX {
        return id.to_string();
    }
    names.entry(id).or_insert_with(|| look_up(id)).clone()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_name_is_looked_up_once_and_the_number_of_names_is_bounded() {
        let lookups = Cell::new(0);
        let look_up = |id: u32| {
            lookups.set(lookups.get() + 1);
            format!("user{id}")
        };
        let mut names = HashMap::new();
        for id in (0..1000).chain(0..1000) {
            let name = remember(&mut names, id, look_up);
            let is_within = (id as usize) < NAMES_MAX;
            assert_eq!(name, if is_within { format!("user{id}") } else { id.to_string() });
        }
        assert_eq!(lookups.get(), NAMES_MAX);
    }
}
