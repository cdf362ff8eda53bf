//! File modes as the contract writes them: a letter per property, then the nine permission letters. Pure.

use libc::{
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, S_ISGID, S_ISUID, S_ISVTX,
};

/// The permission bits, which is what the contract calls `mode`.
pub(crate) fn permission_bits(mode: u32) -> u32 {
    mode & 0o777
}

/// The text form: `-rw-r--r--`, `drwxr-xr-x`, `Lrwxrwxrwx`, `dtrwxrwxrwx`, `Dcrw-rw-rw-`.
pub(crate) fn text(mode: u32) -> String {
    let kind = match mode & S_IFMT {
        S_IFDIR => "d",
        S_IFLNK => "L",
        S_IFBLK | S_IFCHR => "D",
        S_IFIFO => "p",
        S_IFSOCK => "S",
        _ => "",
    };
    let mut text = String::from(kind);
    let properties = [
        (mode & S_ISUID != 0, 'u'),
        (mode & S_ISGID != 0, 'g'),
        (mode & S_IFMT == S_IFCHR, 'c'),
        (mode & S_ISVTX != 0, 't'),
        (!matches!(mode & S_IFMT, S_IFDIR | S_IFLNK | S_IFBLK | S_IFCHR | S_IFIFO | S_IFSOCK | S_IFREG), '?'),
    ];
    text.extend(properties.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter));
    if text.is_empty() {
        text.push('-');
    }
    for (shift, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        text.push(if mode & (1 << shift) != 0 { letter } else { '-' });
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn modes_read_as_in_the_contract() {
        let cases = [
            (S_IFREG | 0o644, "-rw-r--r--"),
            (S_IFDIR | 0o755, "drwxr-xr-x"),
            (S_IFLNK | 0o777, "Lrwxrwxrwx"),
            (S_IFDIR | 0o1777, "dtrwxrwxrwx"),
            (S_IFCHR | 0o666, "Dcrw-rw-rw-"),
            (S_IFBLK | 0o660, "Drw-rw----"),
            (S_IFIFO | 0o600, "prw-------"),
            (S_IFSOCK | 0o755, "Srwxr-xr-x"),
            (S_IFREG | 0o4755, "urwxr-xr-x"),
            (S_IFREG | 0o2755, "grwxr-xr-x"),
            (S_IFDIR | 0o7000, "dugt---------"),
            (0, "?---------"),
        ];
        for (mode, expected) in cases {
            assert_eq!(text(mode), expected, "{mode:o}");
        }
    }

    proptest! {
        #[test]
        fn the_last_nine_letters_are_the_permissions(mode in any::<u32>()) {
            let text = text(mode);
            let permissions = &text[text.len() - 9..];
            let bits = permissions.chars().fold(0, |bits, letter| bits << 1 | u32::from(letter != '-'));
            prop_assert_eq!(bits, permission_bits(mode));
            prop_assert!(text.len() > 9);
        }
    }
}
