/// What the configuration says about this machine.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// Name to put on records instead of the kernel's.
    pub name: Option<String>,
    /// Host id to put on records instead of a hash of the machine id.
    pub host_id: Option<String>,
    /// Names and values to put on every record, in this order.
    pub tags: Vec<(String, String)>,
}

/// This machine. Together with the boot id, a socket's cookie is a key that no other machine or boot has.
#[derive(Clone, Debug)]
pub struct Host {
    name: Option<String>,
    host_id: Option<String>,
    boot_id: Option<String>,
    kernel_release: Option<String>,
    tags: Vec<(String, String)>,
}

impl Host {
    /// Queries the kernel. What it does not report stays absent.
    pub fn read(options: HostOptions) -> Host {
        Host {
            name: options.name.or_else(|| sys::process::host_name().ok()),
            host_id: options.host_id.or_else(super::machine::host_id),
            boot_id: sys::process::boot_id().ok(),
            kernel_release: sys::process::kernel_release().ok(),
            tags: options.tags,
        }
    }

    /// The configured name, or the host name of this process's UTS namespace (`uname -n`).
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The configured id, or a hash of `/etc/machine-id` made for this purpose alone, as a UUID. `None` without either.
    pub fn host_id(&self) -> Option<&str> {
        self.host_id.as_deref()
    }

    /// The kernel's release, as in `uname -r`.
    pub fn kernel_release(&self) -> Option<&str> {
        self.kernel_release.as_deref()
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
