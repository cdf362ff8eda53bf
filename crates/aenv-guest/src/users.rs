//! Accounts of the guest, read from `/etc/passwd` and `/etc/group` by hand: a static binary has no name service.
//! Works without either file: root and plain numbers are always known.

use std::io::Read;
use std::path::{Path, PathBuf};

/// A hostile image must not make us read without end.
const ACCOUNT_FILE_BYTES_MAX: u64 = 4 << 20;
/// The kernel's own limit on supplementary groups.
const GROUPS_MAX: usize = 65_536;

/// An account, as processes and files need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// Login name, or the number when the account has none.
    pub(crate) name: String,
    /// User id.
    pub(crate) uid: u32,
    /// Primary group id.
    pub(crate) gid: u32,
    /// All groups, the primary one first.
    pub(crate) groups: Vec<u32>,
    /// Home directory.
    pub(crate) home: PathBuf,
    /// Login shell.
    pub(crate) shell: PathBuf,
}

/// Why a user was not found.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum UserError {
    /// No such account.
    #[error("invalid username: '{0}'")]
    Unknown(String),
}

/// Finds an account by name, or by number.
pub(crate) fn find(name: &str) -> Result<User, UserError> {
    let passwd = read_bounded(Path::new("/etc/passwd"));
    let group = read_bounded(Path::new("/etc/group"));
    find_in(name, &passwd, &group).ok_or_else(|| UserError::Unknown(name.chars().take(256).collect()))
}

/// The name of a user id, or the number as text.
pub(crate) fn user_name(uid: u32) -> String {
    name_of(uid, &read_bounded(Path::new("/etc/passwd")))
}

/// The name of a group id, or the number as text.
pub(crate) fn group_name(gid: u32) -> String {
    name_of(gid, &read_bounded(Path::new("/etc/group")))
}

/// Reads an account file; absent, special or unreadable counts as empty.
fn read_bounded(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Some(size) = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
    {
        if let Ok(file) = std::fs::File::open(path) {
            // One more than there is: the end is then seen without another buffer.
            bytes.reserve(usize::try_from(size.min(ACCOUNT_FILE_BYTES_MAX)).unwrap_or_default() + 1);
            if file.take(ACCOUNT_FILE_BYTES_MAX).read_to_end(&mut bytes).is_err() {
                bytes.clear();
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Both files keep name and number in fields 1 and 3.
fn name_of(id: u32, file: &str) -> String {
    file.lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| !name.is_empty())?;
            (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
        })
        .unwrap_or_else(|| id.to_string())
}

fn find_in(name: &str, passwd: &str, group: &str) -> Option<User> {
    let mut user = passwd
        .lines()
        .filter_map(parse_passwd_line)
        .find(|user| user.name == name)
        .or_else(|| find_by_number(name, passwd))
        .or_else(|| (name == "root").then(|| nameless(0)))?;
    user.groups = groups_of(&user, group);
    Some(user)
}

fn find_by_number(name: &str, passwd: &str) -> Option<User> {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let uid = name.parse().ok().filter(|uid| is_number && *uid != u32::MAX)?;
    let known = passwd.lines().filter_map(parse_passwd_line).find(|user| user.uid == uid);
    Some(known.unwrap_or_else(|| nameless(uid)))
}

/// An id without an account. Root keeps its name and home; the others own nothing.
fn nameless(id: u32) -> User {
    let (name, home) = if id == 0 { ("root".to_owned(), "/root") } else { (id.to_string(), "/") };
    User { name, uid: id, gid: id, groups: vec![id], home: home.into(), shell: "/bin/sh".into() }
}

fn parse_passwd_line(line: &str) -> Option<User> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, rest @ ..] = fields.as_slice() else { return None };
    let absolute =
        |path: &str, fallback: &str| PathBuf::from(if path.starts_with('/') { path } else { fallback });
    let shell = rest.first().copied().unwrap_or_default().trim();
    Some(User {
        name: (!name.is_empty()).then(|| (*name).to_owned())?,
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        groups: Vec::new(),
        home: absolute(home, "/"),
        shell: absolute(shell, "/bin/sh"),
    })
}

fn groups_of(user: &User, group: &str) -> Vec<u32> {
    let mut groups = vec![user.gid];
    for line in group.lines() {
        let fields: Vec<&str> = line.splitn(4, ':').collect();
        let [_, _, gid, members] = fields.as_slice() else { continue };
        let Ok(gid) = gid.parse() else { continue };
        let is_member = members.split(',').any(|member| member.trim() == user.name);
        if is_member && groups.len() < GROUPS_MAX && !groups.contains(&gid) {
            groups.push(gid);
        }
    }
    groups
}

/// Any account files are survived.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_find(name: &str, passwd: &str, group: &str) {
    if let Some(user) = find_in(name, passwd, group) {
        assert_eq!(user.groups.first(), Some(&user.gid));
        assert!(user.home.is_absolute());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nbroken line\nuser:x:1000:1000::/home/user:/bin/zsh\n\
                          bare:x:7:8::relative:\n";
    const GROUP: &str = "root:x:0:\nuser:x:1000:\nsudo:x:27:other,user\nbad:x:no:user\nsudo2:x:27:user\n";

    #[test]
    fn finds_by_name_with_groups() {
        let user = find_in("user", PASSWD, GROUP).expect("user exists");
        assert_eq!((user.uid, user.gid, user.groups), (1000, 1000, vec![1000, 27]));
        assert_eq!((user.home, user.shell), (PathBuf::from("/home/user"), PathBuf::from("/bin/zsh")));
    }

    #[test]
    fn finds_by_number_with_or_without_an_account() {
        assert_eq!(find_in("1000", PASSWD, GROUP).expect("has an account").name, "user");
        let stranger = find_in("4242", PASSWD, GROUP).expect("numbers always work");
        assert_eq!((stranger.uid, stranger.gid, stranger.home), (4242, 4242, PathBuf::from("/")));
    }

    #[test]
    fn root_exists_without_any_file() {
        let root = find_in("root", "", "").expect("root always exists");
        assert_eq!((root.uid, &root.groups, root.home.as_path()), (0, &vec![0], Path::new("/root")));
        assert_eq!(find_in("0", "", ""), Some(root));
    }

    #[test]
    fn strangers_are_refused() {
        for name in ["ghost", "", "-1", "+1", "4294967295", "4294967296", "1000 "] {
            assert_eq!(find_in(name, PASSWD, GROUP), None, "{name:?}");
        }
    }

    #[test]
    fn odd_home_and_shell_fall_back() {
        let bare = find_in("bare", PASSWD, GROUP).expect("bare exists");
        assert_eq!((bare.home, bare.shell), (PathBuf::from("/"), PathBuf::from("/bin/sh")));
    }

    #[test]
    fn names_of_ids() {
        assert_eq!(name_of(1000, PASSWD), "user");
        assert_eq!(name_of(27, GROUP), "sudo");
        assert_eq!(name_of(99, PASSWD), "99");
    }

    proptest! {
        #[test]
        fn any_account_files_are_survived(name in ".{0,12}", passwd in "(?s).{0,200}", group in "(?s).{0,200}") {
            if let Some(user) = find_in(&name, &passwd, &group) {
                prop_assert_eq!(user.groups.first(), Some(&user.gid));
                prop_assert!(user.home.is_absolute());
            }
        }
    }
}
