/// What the configuration says of this machine.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// Name to put on records instead of the kernel's.
    pub name: Option<String>,
    /// Names and values to put on every record, in this order.
    pub tags: Vec<(String, String)>,
}

/// This machine: with the boot id, a socket's cookie is a key that no other machine and no other boot has.
#[derive(Clone, Debug)]
pub struct Host {
    name: Option<String>,
    boot_id: Option<String>,
    tags: Vec<(String, String)>,
}

impl Host {
    /// Asks the kernel. What it does not tell stays absent.
    pub fn read(options: HostOptions) -> Host {
        let name = options.name.or_else(|| sys::process::host_name().ok());
        Host { name, boot_id: sys::process::boot_id().ok(), tags: options.tags }
    }

    /// The configured name, or the host name of this process' UTS namespace (`uname -n`).
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The kernel's random id of this boot, as a UUID.
    pub fn boot_id(&self) -> Option<&str> {
        self.boot_id.as_deref()
    }

    /// Names and values from the configuration, in its order.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.tags.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
