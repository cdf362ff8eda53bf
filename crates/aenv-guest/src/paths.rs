//! How a path of a request becomes an absolute one. Pure: the file system is not asked.

use std::path::{Component, Path, PathBuf};

/// `~` is the user's home; absolute paths are cleaned; relative ones (and the empty one) start at the default working
/// directory, or else at the home.
///
/// Cleaning is lexical, as the contract's reference does it: `..` never climbs above `/`.
pub(crate) fn resolve(path: &str, home: &Path, default_workdir: Option<&str>) -> PathBuf {
    let base = || match default_workdir.filter(|workdir| !workdir.is_empty()) {
        Some(workdir) => resolve(workdir, home, None),
        None => home.to_owned(),
    };
    match path.strip_prefix('~') {
        Some("") => clean(home),
        Some(rest) if rest.starts_with('/') => clean(&home.join(rest.trim_start_matches('/'))),
        _ if path.starts_with('/') => clean(Path::new(path)),
        _ => clean(&base().join(path)),
    }
}

/// Removes `.`, `..` and doubled slashes without looking at the disk; the result is absolute.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => cleaned.push(name),
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolved(path: &str, workdir: Option<&str>) -> String {
        resolve(path, Path::new("/home/user"), workdir).to_string_lossy().into_owned()
    }

    #[test]
    fn tilde_is_home_only_as_a_whole_component() {
        assert_eq!(resolved("~", Some("/srv")), "/home/user");
        assert_eq!(resolved("~/a/../b", Some("/srv")), "/home/user/b");
        assert_eq!(resolved("~other", None), "/home/user/~other");
        assert_eq!(resolved("~//etc", None), "/home/user/etc");
    }

    #[test]
    fn relative_starts_at_the_workdir_or_home() {
        assert_eq!(resolved("a", None), "/home/user/a");
        assert_eq!(resolved("a", Some("/srv")), "/srv/a");
        assert_eq!(resolved("", Some("~/work")), "/home/user/work");
        assert_eq!(resolved("", Some("")), "/home/user");
        assert_eq!(resolved("", None), "/home/user");
    }

    #[test]
    fn absolute_is_cleaned() {
        assert_eq!(resolved("/a//b/./../c/", Some("/srv")), "/a/c");
        assert_eq!(resolved("/../../etc", None), "/etc");
    }

    proptest! {
        #[test]
        fn result_is_absolute_and_clean(path in "[a-z./~]{0,40}", workdir in proptest::option::of("[a-z./~]{0,20}")) {
            let result = resolve(&path, Path::new("/home/user"), workdir.as_deref());
            prop_assert!(result.is_absolute());
            prop_assert!(result.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_))));
            prop_assert_eq!(clean(&result), result);
        }
    }
}
