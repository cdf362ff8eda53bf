//! The `aenv.` keys of the kernel command line. Pure. Unknown `aenv.` keys are errors; all other words are the kernel's.

use std::net::Ipv4Addr;

use crate::options::DEFAULT_PORT;

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) address: Ipv4Addr,
    pub(super) prefix: u8,
}

impl Interface {
    /// The prefix as a mask.
    pub(super) fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }
}

/// How the machine is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// By the firmware's power-off.
    PowerOff,
    /// By a reset, on machines without one (Firecracker).
    Reset,
}

/// What the host tells the guest at boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BootOptions {
    pub(super) root: String,
    pub(super) root_type: String,
    pub(super) interface: Option<Interface>,
    pub(super) gateway: Option<Ipv4Addr>,
    pub(super) name_servers: Vec<Ipv4Addr>,
    pub(super) host_name: Option<String>,
    pub(super) port: u16,
    pub(super) halt: Halt,
}

/// Why the command line was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum BootOptionsError {
    /// A key that we do not know.
    #[error("unknown key {0:?}")]
    UnknownKey(String),
    /// A value that does not parse.
    #[error("{key} does not accept {value:?}")]
    BadValue {
        /// The key.
        key: String,
        /// The refused value.
        value: String,
    },
}

impl Default for BootOptions {
    fn default() -> Self {
        Self {
            root: "/dev/vda".to_owned(),
            root_type: "ext4".to_owned(),
            interface: None,
            gateway: None,
            name_servers: Vec::new(),
            host_name: None,
            port: DEFAULT_PORT,
            halt: Halt::PowerOff,
        }
    }
}

impl BootOptions {
    /// Reads the keys that are ours. The last of equal keys wins, as the kernel has it.
    pub(super) fn parse(command_line: &str) -> Result<Self, BootOptionsError> {
        let mut options = Self::default();
        for word in command_line.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if key.starts_with("aenv.") {
                options.set(key, value)?;
            }
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), BootOptionsError> {
        let bad = || BootOptionsError::BadValue { key: key.to_owned(), value: value.to_owned() };
        match key {
            "aenv.root" => self.root = device_path(value).ok_or_else(bad)?,
            "aenv.rootfstype" => self.root_type = file_system_name(value).ok_or_else(bad)?,
            "aenv.address" => self.interface = Some(interface(value).ok_or_else(bad)?),
            "aenv.gateway" => self.gateway = Some(value.parse().map_err(|_| bad())?),
            "aenv.dns" => {
                self.name_servers =
                    value.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
            }
            "aenv.hostname" => self.host_name = Some(host_name(value).ok_or_else(bad)?),
            "aenv.port" => self.port = value.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?,
            "aenv.halt" => self.halt = halt(value).ok_or_else(bad)?,
            _ => return Err(BootOptionsError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }
}

fn device_path(value: &str) -> Option<String> {
    let name = value.strip_prefix("/dev/")?;
    let is_plain = !name.is_empty() && !name.split('/').any(|part| matches!(part, "" | "." | ".."));
    is_plain.then(|| value.to_owned())
}

fn file_system_name(value: &str) -> Option<String> {
    let is_name = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| value.to_owned())
}

fn interface(value: &str) -> Option<Interface> {
    let (address, prefix) = value.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| (1..=32).contains(prefix))?;
    Some(Interface { address: address.parse().ok()?, prefix })
}

fn host_name(value: &str) -> Option<String> {
    crate::api::is_host_name(value).then(|| value.to_owned())
}

fn halt(value: &str) -> Option<Halt> {
    match value {
        "poweroff" => Some(Halt::PowerOff),
        "reset" => Some(Halt::Reset),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn defaults_suit_a_line_without_our_keys() {
        assert_eq!(BootOptions::parse("console=ttyS0 quiet root=/dev/sda"), Ok(BootOptions::default()));
    }

    #[test]
    fn all_keys_are_read() {
        let line = "quiet aenv.root=/dev/vdb aenv.rootfstype=xfs aenv.address=169.254.0.21/30 aenv.gateway=169.254.0.22 \
                    aenv.dns=169.254.0.22,1.1.1.1 aenv.hostname=box aenv.port=5000 aenv.halt=reset\n";
        let options = BootOptions::parse(line).expect("valid");
        assert_eq!((options.root.as_str(), options.root_type.as_str()), ("/dev/vdb", "xfs"));
        let interface = options.interface.expect("an address");
        assert_eq!(
            (interface.address, interface.mask()),
            ("169.254.0.21".parse().expect("an address"), [255, 255, 255, 252].into())
        );
        assert_eq!((options.gateway, options.name_servers.len()), (Some([169, 254, 0, 22].into()), 2));
        assert_eq!(
            (options.host_name.as_deref(), options.port, options.halt),
            (Some("box"), 5000, Halt::Reset)
        );
    }

    #[test]
    fn bad_keys_and_values_are_named() {
        assert_eq!(BootOptions::parse("aenv.rot=1"), Err(BootOptionsError::UnknownKey("aenv.rot".into())));
        for word in [
            "aenv.root=/etc/passwd",
            "aenv.root=/dev/../etc",
            "aenv.rootfstype=",
            "aenv.address=1.2.3.4",
            "aenv.address=1.2.3.4/33",
            "aenv.gateway=",
            "aenv.dns=1.2.3.4,",
            "aenv.hostname=a/b",
            "aenv.port=0",
            "aenv.halt=now",
            "aenv.root",
        ] {
            let error = BootOptions::parse(word).expect_err(word);
            assert!(matches!(error, BootOptionsError::BadValue { .. }), "{word}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in "(?s)(aenv\\.[a-z]{0,10}=.{0,20} ?|.{0,20}){0,4}") {
            let _ = BootOptions::parse(&line);
        }
    }
}
