// Writes one JSON line per finished test, for the Python side to read.
export default async function* report(events) {
    for await (const { type, data } of events) {
        if (type !== 'test:pass' && type !== 'test:fail') continue
        if (data.details?.type === 'suite') continue
        const error = data.details?.error
        const reason = error === undefined ? '' : String(error.cause?.stack ?? error.cause ?? error.stack ?? error)
        yield JSON.stringify({ name: data.name, passed: type === 'test:pass', reason }) + '\n'
    }
}
