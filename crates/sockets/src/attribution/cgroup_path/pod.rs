use super::Name;

/// Longest uid that is accepted, in bytes. Uids are 36 or 32 long; the manifest of a static pod may name any.
const MAX_UID_BYTES: usize = 63;

/// Whether the kubelet keeps its pods below this directory: `kubepods`, `kubepods.slice`, `kubelet-kubepods.slice`.
pub(super) fn is_root(component: &str) -> bool {
    let stem = component.strip_suffix(".slice").unwrap_or(component);
    stem == "kubepods" || stem.ends_with("-kubepods")
}

/// The uid in `pod<uid>` (cgroupfs driver), in `kubepods-burstable-pod<uid>.slice` (systemd driver), and in the first part of
/// `kubepods-burstable-pod<uid>.slice:cri-containerd:<id>` (systemd's form written by the cgroupfs driver).
pub(super) fn uid(component: &str, below_kubepods: bool) -> Option<Name<'_>> {
    let component = component.split_once(':').map_or(component, |(slice, _)| slice);
    if let Some(slice) = component.strip_suffix(".slice") {
        return uid_of_slice(slice);
    }

    let uid = component.strip_prefix("pod")?;
    // Outside the kubelet's directories anybody may use such a name, so only what looks like a uid is accepted.
    let known = is_uuid(uid, b'-') || is_hash(uid) || (below_kubepods && is_chosen(uid));
    known.then(|| Name::plain(uid))
}

fn uid_of_slice(slice: &str) -> Option<Name<'_>> {
    let (above, last) = slice.rsplit_once('-')?;
    let class = above.strip_suffix("-burstable").or_else(|| above.strip_suffix("-besteffort"));
    let uid = last.strip_prefix("pod")?;
    let known = is_uuid(uid, b'_') || is_hash(uid) || is_chosen(uid);
    (is_root(class.unwrap_or(above)) && known).then(|| Name::with_underscores(uid))
}

fn is_uuid(text: &str, separator: u8) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == separator,
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The kubelet's uid for a static pod: an MD5 in hexadecimal.
fn is_hash(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_chosen(text: &str) -> bool {
    (1..=MAX_UID_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
