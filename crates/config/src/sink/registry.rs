//! The registry for the schema of a sink's messages.

use super::credentials::{secret_path, user};
use super::kind::is_built;
use super::url::Url;
use super::{Body, Written};
use crate::form::{path, text};
use crate::keys::keys;
use crate::reader::Reader;
#[cfg(feature = "kafka")]
use ::sink::{Login, SchemaRegistry, SecretSource, TlsIdentity, TlsOptions, TlsVerify};
use record::Encoding;
use std::path::PathBuf;

keys! {
    /// A schema registry, if there is one.
    pub struct Registry in "sink" of "sinks to Kafka with a schema registry" {
        /// Where the schema of the messages is registered (`TOPIC-value`): what stands before `/subjects`. Each value begins with the
        /// schema's number then, as Confluent's serializers write it. Needs the cargo feature `http`.
        schema_registry => url: Option<String> = text("URL", url), unset("values without a schema's number");
        /// Name of the user at the registry.
        schema_registry_user => user: Option<String> = text("1 to 256 characters", user), unset("no user")
            where |it| it.url.is_some(), "there is no registry. Fix: add schema_registry = \"http://HOST:8081\"";
        /// File that holds that user's password.
        schema_registry_password_file => password_file: Option<PathBuf> =
            path("path", secret_path), unset("no password")
            where |it| it.user.is_some(), "there is no user. Fix: add schema_registry_user = \"NAME\"";
        /// File that holds a token for the registry, instead of a user and a password.
        schema_registry_token_file => token_file: Option<PathBuf> = path("path", secret_path), unset("no token")
            where |it| it.url.is_some() && it.user.is_none(), "the registry is asked by nobody, or by a user. Fix: remove one of the two";
        /// File with the certificates (PEM) of which one must have signed the registry's.
        schema_registry_ca => ca: Option<PathBuf> = path("path", secret_path), unset("the authorities of the system")
            where |it| it.is_tls(), "it takes effect with schema_registry = \"https://…\" only";
        /// File with the certificate and its chain (PEM) that the registry is shown. Needs `schema_registry_key`.
        schema_registry_cert => certificate: Option<PathBuf> = path("path", secret_path), unset("none")
            where |it| it.is_tls() && it.key.is_some(), "it needs schema_registry = \"https://…\" and schema_registry_key = \"/path\"";
        /// File with the key (PEM) of `schema_registry_cert`.
        schema_registry_key => key: Option<PathBuf> = path("path", secret_path), unset("none")
            where |it| it.certificate.is_some(), "it has no certificate. Fix: add schema_registry_cert = \"/path\"";
    }
}

fn url(text: &str) -> Result<String, String> {
    let wrong =
        || "it is no URL of a registry. Fix: write for example http://127.0.0.1:8081".to_owned();
    let (scheme, rest) = text.split_once(':').ok_or_else(wrong)?;
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return Err(wrong()),
    };
    let url = Url::parse_single(rest, port).map_err(|error| error.to_string())?;
    Ok(format!("{scheme}:{url}"))
}

impl Registry {
    /// Reads the keys, and checks them against the format of the rows.
    pub(super) fn for_written(reader: &Reader<'_>, written: &Written) -> Option<Registry> {
        let registry = Registry::read(reader)?;
        if registry.url.is_some() {
            if written.format != Encoding::Protobuf || written.body != Body::Record {
                let message =
                    "only records in protobuf have a schema. Fix: remove it, or format and body";
                reader.error(&Self::schema_registry, message);
            }
            if !is_built("http") {
                let message = "this build has no client for it. Fix: build with `cargo build --release -p weir --features \
                               kafka,http`, or use the image";
                reader.error(&Self::schema_registry, message);
            }
        }
        Some(registry)
    }

    fn is_tls(&self) -> bool {
        self.url.as_ref().is_some_and(|url| url.starts_with("https:"))
    }

    /// The registry's options for the destination.
    #[cfg(feature = "kafka")]
    pub(super) fn options(&self) -> Option<SchemaRegistry> {
        let file = |path: &Option<PathBuf>| path.clone().map(SecretSource::File);
        let identity = self.certificate.clone().zip(self.key.clone());
        Some(SchemaRegistry {
            url: self.url.clone()?,
            login: Login {
                user: self.user.clone(),
                password: file(&self.password_file),
                token: file(&self.token_file),
            },
            tls: TlsOptions {
                ca: self.ca.clone(),
                identity: identity.map(|(certificate, key)| TlsIdentity { certificate, key }),
                verify: TlsVerify::On,
            },
        })
    }
}
