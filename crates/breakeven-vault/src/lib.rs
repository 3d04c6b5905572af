//! The door from the vault to stores of objects that speak S3.
//!
//! [`open`] makes a far end of `s3://bucket/prefix` and the environment's credentials. Each request is made once,
//! blocking; trying again, turns and fences are the library's ([`breakeven::vault::ObjectsEnd`]). A pack is one
//! conditional put, never a multipart upload, which could not be conditional.
//!
//! Memory: one copy of the object that is put or read, at most a pack, for each thread that asks.
#![deny(unsafe_code)]
// Standard error may be full or closed, and these would end the process then.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use breakeven::vault::{
    Entropy, FarEnd, Listed, ObjectHead, ObjectsEnd, Part, Put, RequestError, Requests,
};
use breakeven::{Error, Result};
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
};
use tokio::runtime::Runtime;
use url::Url;

/// The beginning of a vault's address.
pub const SCHEME: &str = "s3://";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a named server's first answer. A lost packet is sent again after one second, and once more after
/// two.
const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_millis(2500);
/// Variables by which requests get their signatures, or go without: all of one row. Only if the last is set, the
/// machine's metadata address is asked.
const CREDENTIALS: [&[&str]; 6] = [
    &["aws_access_key_id", "aws_secret_access_key"],
    &["aws_web_identity_token_file", "aws_role_arn"],
    &["aws_container_credentials_relative_uri"],
    &[
        "aws_container_credentials_full_uri",
        "aws_container_authorization_token_file",
    ],
    &["aws_skip_signature"],
    &["aws_metadata_endpoint"],
];
/// Variables that send requests through a proxy.
const PROXIES: [&str; 3] = ["http_proxy", "https_proxy", "all_proxy"];

/// How a store is reached.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// Another server than Amazon's: `http://HOST:9000`. Default none.
    pub endpoint: Option<String>,
    /// The environment: credentials, region and the rest are those of its `AWS_*` variables. Default: the variables of
    /// the process.
    pub variables: Vec<(String, String)>,
    /// The time after which a request without an answer has failed. Default 300 s: a pack of 16 MiB over 1 Mbit/s takes
    /// 134.
    pub request_timeout: Duration,
}

impl Default for S3Options {
    fn default() -> S3Options {
        S3Options {
            endpoint: None,
            variables: std::env::vars().collect(),
            request_timeout: Duration::from_secs(300),
        }
    }
}

/// Opens the far end at `s3://bucket/prefix`.
///
/// # Errors
/// [`Error::Invalid`] for an address or variables without use, or if no server answers; [`Error::Io`] without threads.
pub fn open(url: &str, options: &S3Options) -> Result<Arc<dyn FarEnd>> {
    let invalid = |reason: &dyn std::fmt::Display| Error::invalid("address of the vault", reason);
    let address = url.strip_prefix(SCHEME).ok_or_else(|| invalid(&url))?;
    let (bucket, prefix) = address.split_once('/').unwrap_or((address, ""));
    let prefix = Path::parse(prefix.trim_end_matches('/')).map_err(|error| invalid(&error))?;
    // The first choice in the process counts; all choices are good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = ClientOptions::new()
        .with_timeout(options.request_timeout)
        .with_connect_timeout(CONNECT_TIMEOUT);
    let once = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: Duration::ZERO,
    };
    let mut builder = AmazonS3Builder::new();
    check_credentials(&options.variables)?;
    for (name, value) in &options.variables {
        let name = name.to_ascii_lowercase();
        if name.starts_with("aws_")
            && !value.is_empty()
            && let Ok(key) = name.parse()
        {
            builder = builder.with_config(key, value);
        }
    }
    builder = builder
        .with_bucket_name(bucket)
        .with_client_options(client)
        .with_retry(once);
    let set = |name: &str| value_of(&options.variables, name);
    let named = options.endpoint.as_deref();
    let mut others = ["aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint"].iter();
    let named = named.or_else(|| others.find_map(|name| set(name)));
    let is_direct = PROXIES.iter().all(|name| set(name).is_none());
    if let Some(endpoint) = named.filter(|_| is_direct) {
        check_answers(endpoint)?;
    }
    if let Some(endpoint) = &options.endpoint {
        let is_plain = endpoint.starts_with("http://");
        builder = builder.with_endpoint(endpoint).with_allow_http(is_plain);
    }
    let store = builder.build().map_err(|error| invalid(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("requests")
        .enable_all()
        .build()
        .map_err(|error| Error::io("start", "the threads of requests", error))?;
    let requests = S3 {
        store: Box::new(store),
        runtime,
        prefix,
    };
    Ok(ObjectsEnd::shared(Arc::new(requests), Entropy::system()?))
}

/// Returns the value of a variable, if it has one; names may be in capital or small letters.
fn value_of<'v>(variables: &'v [(String, String)], name: &str) -> Option<&'v str> {
    let found = variables
        .iter()
        .find(|(known, value)| known.eq_ignore_ascii_case(name) && !value.is_empty());
    found.map(|(_, value)| &value[..])
}

/// Refuses to begin without credentials, which would else be looked for at an address of the machine's host.
fn check_credentials(variables: &[(String, String)]) -> Result<()> {
    let is_set = |name: &&str| value_of(variables, name).is_some();
    if CREDENTIALS.iter().any(|names| names.iter().all(is_set)) {
        return Ok(());
    }
    let reason = "none: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_METADATA_ENDPOINT=http://169.254.169.254 to ask the machine's host for its role's";
    Err(Error::invalid("credentials", reason))
}

/// Reports at once that no server listens: later requests are repeated for half a minute.
fn check_answers(endpoint: &str) -> Result<()> {
    let invalid = |reason: String| Error::invalid("endpoint", format!("{endpoint}: {reason}"));
    let url = Url::parse(endpoint).map_err(|error| invalid(error.to_string()))?;
    let (sender, receiver) = std::sync::mpsc::channel();
    // The lookup of a name has no time limit.
    let connecting = std::thread::Builder::new().name("connect".to_string());
    let connecting = connecting.spawn(move || sender.send(connect(&url)));
    connecting.map_err(|error| Error::io("start", "a thread", error))?;
    match receiver.recv_timeout(FIRST_CONNECT_TIMEOUT) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(invalid(format!("{error}; are host and port right?"))),
        Err(_) => Err(invalid(
            "nobody answers; are host and port right?".to_string(),
        )),
    }
}

fn connect(url: &Url) -> std::io::Result<()> {
    let mut refused = std::io::Error::other("it has no address");
    for address in url.socket_addrs(|| None)? {
        match TcpStream::connect_timeout(&address, FIRST_CONNECT_TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

struct S3 {
    store: Box<dyn ObjectStore>,
    runtime: Runtime,
    prefix: Path,
}

type Answer<T> = std::result::Result<T, RequestError>;

impl S3 {
    fn path(&self, name: &str) -> Path {
        match self.prefix.as_ref() {
            "" => Path::from(name),
            prefix => Path::from(format!("{prefix}/{name}")),
        }
    }

    fn meta(&self, name: &str) -> Answer<Option<ObjectMeta>> {
        let path = self.path(name);
        found(self.runtime.block_on(self.store.head(&path)))
    }
}

/// Tells a missing object from a failed request.
fn found<T>(answer: object_store::Result<T>) -> Answer<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Tells passing errors from lasting ones.
fn failed(error: object_store::Error) -> RequestError {
    use object_store::Error as E;
    match error {
        E::PermissionDenied { .. }
        | E::Unauthenticated { .. }
        | E::NotSupported { .. }
        | E::NotImplemented { .. }
        | E::InvalidPath { .. }
        | E::NotFound { .. }
        | E::UnknownConfigurationKey { .. } => {
            let source = std::io::Error::other(error.to_string());
            RequestError::Refused(Error::io("ask", "the store of objects", source))
        }
        error => RequestError::Again(error.to_string()),
    }
}

impl Requests for S3 {
    fn put_new(&self, name: &str, bytes: &[u8]) -> Answer<Put> {
        let path = self.path(name);
        let payload = PutPayload::from(bytes.to_vec());
        let options = PutOptions::from(PutMode::Create);
        let answer = self
            .runtime
            .block_on(self.store.put_opts(&path, payload, options));
        match answer {
            Ok(_) => Ok(Put::Created),
            // The store reports a conflict with another request under way in the same way, with or without an object.
            Err(object_store::Error::AlreadyExists { .. }) => match self.meta(name)? {
                Some(_) => Ok(Put::Exists),
                None => Err(RequestError::Again("a conflicting request".to_string())),
            },
            Err(error) => Err(failed(error)),
        }
    }

    fn get(&self, name: &str, part: Part) -> Answer<Option<Vec<u8>>> {
        let path = self.path(name);
        let mut options = GetOptions::new();
        if let Part::Range {
            offset,
            length_bytes,
        } = part
        {
            let end = offset.saturating_add(length_bytes as u64);
            options = options.with_range(Some(GetRange::Bounded(offset..end)));
        }
        let answer = self.runtime.block_on(self.store.get_opts(&path, options));
        let answer = match (found(answer), part) {
            // A range behind the end is refused like any other; the size shows the reason.
            (Err(RequestError::Again(reason)), Part::Range { offset, .. }) => {
                return match self.meta(name)? {
                    Some(meta) if meta.size <= offset => Ok(Some(Vec::new())),
                    _ => Err(RequestError::Again(reason)),
                };
            }
            (answer, _) => answer?,
        };
        let Some(answer) = answer else {
            return Ok(None);
        };
        let length = check_length(&answer, part)?;
        let bytes = self.runtime.block_on(answer.bytes()).map_err(failed)?;
        match bytes.len() as u64 == length {
            true => Ok(Some(bytes.into())),
            false => Err(RequestError::Again(
                "an answer that ended early".to_string(),
            )),
        }
    }

    fn head(&self, name: &str) -> Answer<Option<ObjectHead>> {
        let meta = self.meta(name)?;
        Ok(meta.map(|meta| ObjectHead {
            size_bytes: meta.size,
            put_at: meta.last_modified.timestamp(),
        }))
    }

    fn list(&self, folder: &str) -> Answer<Vec<Listed>> {
        let path = self.path(folder);
        let all = self.store.list(Some(&path)).try_collect::<Vec<_>>();
        let all = self.runtime.block_on(all).map_err(failed)?;
        let below = format!("{path}/");
        let listed = all.into_iter().filter_map(|meta| {
            let name = meta.location.as_ref().strip_prefix(&below)?.to_string();
            Some(Listed {
                name,
                size_bytes: Some(meta.size),
            })
        });
        Ok(listed.collect())
    }

    fn delete(&self, name: &str) -> Answer<()> {
        let path = self.path(name);
        found(self.runtime.block_on(self.store.delete(&path))).map(drop)
    }

    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Checks how long an answer is before any of it is stored, and returns the length.
fn check_length(answer: &GetResult, part: Part) -> Answer<u64> {
    let length = answer.range.end - answer.range.start;
    let most_bytes = match part {
        Part::Whole { most_bytes } => most_bytes,
        Part::Range { length_bytes, .. } => length_bytes as u64,
    };
    match length <= most_bytes {
        true => Ok(length),
        false => Err(RequestError::Refused(Error::Limit {
            what: "object",
            limit_bytes: most_bytes,
            needed_bytes: length,
        })),
    }
}
